"""The training loop."""

import time
from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

from xlaexp import watchdog
from xlaexp.callbacks import Callback
from xlaexp.config.schema import Objective, Train
from xlaexp.result import Result, improves
from xlaexp.train.evaluate import evaluate
from xlaexp.train.parts import Parts
from xlaexp.train.readings import Readings
from xlaexp.train.saving import Saving
from xlaexp.train.state import Progress
from xlaexp.xla import collectives


def fit(
    parts: Parts,
    plan: Train,
    objective: Objective,
    callback: Callback,
    readings: Readings,
    saving: Saving | None = None,
    progress: Progress | None = None,
    stoppable: bool = False,
) -> Result:
    """Trains and evaluates.

    Args:
        parts: what is trained, on this replica.
        plan: how long, and how often to look.
        objective: which evaluation is the best.
        callback: looks on.
        readings: of the training loss.
        saving: saves the state of the training, and stops it if it is asked to; None: neither.
        progress: where to go on; None: at the beginning.
        stoppable: whether ``callback.stops`` on one replica ends the training on all; they agree on it after every
            evaluation, in a collective of its own.

    Returns:
        What the run came to; the same on every replica, but for the time.

    Raises:
        RuntimeError: a loader handed out fewer batches than it promised.
        StoppedError: the run was asked to stop.
    """
    progress = progress or Progress()
    parts.model.train()
    started = time.perf_counter()
    first, mode = objective.metrics[0], objective.modes[0]
    epochs = progress.epoch
    while not progress.stopped and (progress.step < parts.total_steps or not progress.ended):
        train_epoch(parts, plan, progress, readings, callback, saving)
        epochs = progress.epoch + 1
        parts.batches.start(progress.epoch, progress.samples)
        if not len(parts.batches):  # unless max_steps ends the run in the middle of it
            progress.epoch, progress.samples = epochs, 0
        progress.ended = over = progress.step >= parts.total_steps
        evaluated = None
        if epochs % plan.eval_every == 0 or over:
            paused = readings.pause()
            progress.metrics = evaluated = evaluate(parts)
            if improves(evaluated[first], progress.best.get(first), mode):
                progress.best = evaluated
            callback.evaluate(progress.step, evaluated)
            progress.stopped = stoppable and collectives.any_replica(callback.stops, parts.device)
            readings.resume(paused)
        if saving:
            saving.after_epoch(progress, evaluated, over or progress.stopped)
    return Result(
        metric=first,
        objective=progress.best[first],
        objectives={name: progress.best[name] for name in objective.metrics},
        metrics=progress.metrics,
        epochs=epochs,
        steps=progress.step,
        replicas=parts.replicas,
        seconds=time.perf_counter() - started,
    )


class Turn(NamedTuple):
    """What a batch is to its optimizer step."""

    first: bool
    last: bool
    weight: float
    """The batch's part of the step's samples."""
    samples: int
    """Of the whole step, on this replica."""


def turns(sizes: list[int], accumulate: int) -> Iterator[Turn]:
    """The batches of an epoch in groups of one optimizer step each; what is left over is a group, too.

    Args:
        sizes: samples of each batch.
        accumulate: batches an optimizer step.
    """
    for start in range(0, len(sizes), accumulate):
        group = sizes[start : start + accumulate]
        for number, size in enumerate(group):
            yield Turn(number == 0, number == len(group) - 1, size / sum(group), sum(group))


def train_epoch(
    parts: Parts,
    plan: Train,
    progress: Progress,
    readings: Readings,
    callback: Callback,
    saving: Saving | None = None,
) -> None:
    """One epoch, or what an interruption and max_steps leave of it.

    Args:
        parts: what is trained.
        plan: how many batches make a step.
        progress: where it begins; moved on with every step. By the end all of them have been executed.
        readings: of the training loss.
        callback: looks on.
        saving: may save after a step, or stop.
    """
    strategy = parts.strategy
    parts.batches.start(progress.epoch, progress.samples)
    wanted = list(turns(parts.batches.sizes(), plan.accumulate))
    ends = [number for number, turn in enumerate(wanted, 1) if turn.last]
    if len(ends) > (left := parts.total_steps - progress.step):
        wanted = wanted[: ends[left - 1] if left else 0]
    fed = part = 0
    with closing(strategy.batches(parts.train_loader)) as batches:
        # In this order: no batch is asked for after the last one that is wanted.
        for turn, batch in zip(wanted, batches, strict=False):
            readings.read(fed - strategy.pending())
            part = 0 if turn.first else part + 1
            parts.reseed(progress.step * plan.accumulate + part)
            if turn.last:
                strategy.step(batch, turn.first, turn.weight)
            else:
                strategy.accumulate(batch, turn.first, turn.weight)
            fed += 1
            progress.step += turn.last
            watchdog.beat(progress.step)
            if not turn.last:
                continue
            progress.samples += turn.samples * parts.replicas
            readings.note(progress.step, fed)
            parts.scheduler.step()
            callback.step(progress.step)
            if saving:
                saving.after_step(progress, fed, last=fed == len(wanted))
    strategy.drain()
    readings.read(fed)
    if fed != len(wanted):
        raise RuntimeError(f"the training loader ended {len(wanted) - fed} batches early, in epoch {progress.epoch}")
