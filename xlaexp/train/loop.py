"""The training loop."""

import time
from contextlib import closing

from xlaexp.callbacks import Callback
from xlaexp.config.schema import Objective, Train
from xlaexp.result import Result, improves
from xlaexp.train.evaluate import evaluate
from xlaexp.train.parts import Parts
from xlaexp.train.readings import Readings
from xlaexp.xla import collectives


def fit(parts: Parts, plan: Train, objective: Objective, callback: Callback, stoppable: bool = False) -> Result:
    """Trains and evaluates.

    Args:
        parts: what is trained, on this replica.
        plan: how long, and how often to look.
        objective: which evaluation is the best.
        callback: looks on.
        stoppable: whether ``callback.stops`` on one replica ends the training on all; they agree on it after every
            evaluation, in a collective of its own.

    Returns:
        What the run came to; the same on every replica, but for the time.

    Raises:
        RuntimeError: a loader handed out fewer batches than it promised.
    """
    readings = Readings(parts, plan.log_every, callback)
    parts.model.train()
    started = time.perf_counter()
    step = epochs = 0
    metrics: dict[str, float] = {}
    best: dict[str, float] = {}
    first, mode = objective.metrics[0], objective.modes[0]
    while step < parts.total_steps:
        step = train_epoch(parts, epochs, step, readings, callback)
        epochs += 1
        if epochs % plan.eval_every == 0 or step == parts.total_steps:
            paused = readings.pause()
            metrics = evaluate(parts)
            if improves(metrics[first], best.get(first), mode):
                best = metrics
            callback.evaluate(step, metrics)
            if stoppable and collectives.any_replica(callback.stops, parts.device):
                break
            readings.resume(paused)
    return Result(
        metric=first,
        objective=best[first],
        objectives={name: best[name] for name in objective.metrics},
        metrics=metrics,
        epochs=epochs,
        steps=step,
        replicas=parts.replicas,
        seconds=time.perf_counter() - started,
    )


def train_epoch(parts: Parts, epoch: int, step: int, readings: Readings, callback: Callback) -> int:
    """One epoch, or what max_steps leaves of it.

    Args:
        parts: what is trained.
        epoch: its number, from 0.
        step: optimizer steps taken before it.
        readings: of the training loss.
        callback: looks on.

    Returns:
        Optimizer steps taken by its end; all of them have been executed.
    """
    strategy = parts.strategy
    parts.set_epoch(epoch)
    promised = step + min(len(parts.train_loader), parts.total_steps - step)
    with closing(strategy.batches(parts.train_loader)) as batches:
        for batch in batches:
            readings.read(step - strategy.pending())
            strategy.step(batch)
            step += 1
            readings.note(step)
            parts.scheduler.step()
            callback.step(step)
            if step == parts.total_steps:
                break
    strategy.drain()
    readings.read(step)
    if step != promised:
        raise RuntimeError(f"the training loader ended {promised - step} batches early, in epoch {epoch}")
    return step
