"""One replica's life: seed, build, fit, close."""

import logging
import threading
from dataclasses import replace
from pathlib import Path

from xlaexp import environment, failure
from xlaexp.build import build, trackers
from xlaexp.callbacks import Callback, Callbacks, Run
from xlaexp.checkpoint import Checkpoints
from xlaexp.config.schema import Config
from xlaexp.console import speak_as
from xlaexp.pruning import Pruning
from xlaexp.train.loop import fit
from xlaexp.train.parts import Parts
from xlaexp.train.progress import ProgressBar
from xlaexp.xla import lockstep, runtime

log = logging.getLogger("xlaexp")
_watching = threading.Lock()


def run(ordinal: int, config: Config, directory: Path) -> None:
    """Runs one replica. Everything that this needs is in its arguments, which pickle.

    Args:
        ordinal: this replica's number.
        config: the whole run.
        directory: its output directory.

    Raises:
        Exception: what went wrong on this replica, after it was logged and the others were told.
    """
    speak_as(ordinal)
    try:
        _run(ordinal, config, directory)
    except threading.BrokenBarrierError:
        # Another replica has failed; what it says is what the user needs.
        log.info("stopped, because another replica has failed")
        raise
    except KeyboardInterrupt:
        log.info("interrupted")
        lockstep.abort()
        raise
    except BaseException as error:
        if failure.record(directory, ordinal, error):
            log.exception("replica %d failed", ordinal)
        lockstep.abort()
        raise


def run_in_child(ordinal: int, config: Config, directory: Path) -> None:
    """Runs one of the replicas of a child process; see :func:`run`."""
    if _watching.acquire(blocking=False):  # the first replica of this process starts the watch
        failure.watch(directory)
    run(ordinal, config, directory)


def _run(ordinal: int, config: Config, directory: Path) -> None:
    lockstep.install()
    compiled = runtime.compilations()
    runtime.seed(config.seed, ordinal)
    parts = build(config)
    pruning = Pruning(config.trial, config.objective.metrics[0]) if config.trial and ordinal == 0 else None
    callback = Callbacks(_callbacks(config, directory, parts, pruning) if ordinal == 0 else [])
    result = None
    try:
        if ordinal == 0:
            _introduce(config, parts, directory)
        steps_per_epoch = len(parts.train_loader)
        callback.start(Run(config.raw, parts.total_steps, steps_per_epoch, config.objective.metrics[0]))
        result = fit(parts, config.train, config.objective, callback, stoppable=config.trial is not None)
        pruned = pruning is not None and pruning.stops
        result = replace(result, pruned=pruned, compilations=runtime.compilations() - compiled)
    finally:
        callback.end(result)
    if ordinal == 0:
        result.write(directory)


def _callbacks(config: Config, directory: Path, parts: Parts, pruning: Pruning | None) -> list[Callback]:
    def state() -> dict[str, object]:
        return {
            "model": parts.model.state_dict(),
            "optimizer": parts.optimizer.state_dict(),
            "scheduler": parts.scheduler.state_dict(),
        }

    checkpoints = Checkpoints(directory, state, config.objective.metrics[0], config.objective.modes[0])
    return [*trackers(config, directory), checkpoints, *([pruning] if pruning else []), ProgressBar()]


def _introduce(config: Config, parts: Parts, directory: Path) -> None:
    kind = runtime.device_kind()
    environment.add(directory, device={"kind": kind, "count": parts.replicas})
    parameters = sum(p.numel() for p in parts.model.parameters())
    plural = "s" if parts.replicas > 1 else ""
    log.info(
        "%d replica%s on %s, strategy %s (device=%s loader=%s)",
        parts.replicas,
        plural,
        kind,
        config.strategy,
        config.device.launch,
        config.loader.name,
    )
    log.info(
        "%s with %s parameters on %s: %d steps of %d samples",
        config.model.name,
        f"{parameters:,}",
        config.data.name,
        parts.total_steps,
        parts.train_samples,
    )
