"""One replica's life: seed, build, fit, close."""

import logging
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from xlaexp import environment, failure, restoring, watchdog
from xlaexp.build import build, callbacks
from xlaexp.callbacks import Callback, Callbacks, Run
from xlaexp.checkpoint import CheckpointError, Store
from xlaexp.config.schema import Config
from xlaexp.console import speak_as
from xlaexp.pruning import Pruning
from xlaexp.result import Result
from xlaexp.stopping import StoppedError
from xlaexp.train.evaluate import load_weights, measure
from xlaexp.train.loop import fit
from xlaexp.train.parts import Parts
from xlaexp.train.progress import ProgressBar
from xlaexp.train.readings import Readings
from xlaexp.train.saving import Saving
from xlaexp.train.state import Progress
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
        with watchdog.watched(ordinal, config.device.timeout, directory):
            _run(ordinal, config, directory)
    except threading.BrokenBarrierError:
        # Another replica has failed; what it says is what the user needs.
        log.info("stopped, because another replica has failed")
        raise
    except StoppedError as stopped:
        log.info("%s; its checkpoint is written", stopped)
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
    if config.evaluated is not None:
        _evaluate(Path(config.evaluated), config, directory, parts, compiled)
        return
    found = restoring.to_go_on_from(config, directory)
    if found is not None:
        parts = restoring.rescaled(parts, config, found[1])
    pruning = Pruning(config.trial, config.objective.metrics[0]) if config.trial and ordinal == 0 else None
    callback = Callbacks(_callbacks(config, directory, pruning) if ordinal == 0 else {})
    readings = Readings(parts, config.train.log_every, callback, config.train.on_nonfinite)
    store = Store(directory, config.checkpoint.keep_last) if ordinal == 0 else None
    saving = Saving(parts, config.checkpoint, readings, callback, store, lambda: _described(config))
    progress, result = Progress(), None
    try:
        if found is not None:
            restoring.resume(*found, parts, progress, readings, callback, saving)
        if ordinal == 0:
            plan = f"{parts.total_steps} steps of {parts.train_samples} samples"
            _introduce(config, parts, directory, plan)
        metric = config.objective.metrics[0]
        callback.start(Run(config.raw, parts.total_steps, parts.steps_per_epoch, metric, progress.step))
        result = fit(
            parts,
            config.train,
            config.objective,
            callback,
            readings,
            saving,
            progress,
            config.trial is not None or bool(config.callbacks),
        )
        pruned = pruning is not None and pruning.stops
        result = replace(result, pruned=pruned, compilations=runtime.compilations() - compiled)
        if store:
            store.close()
    except Exception:
        if store:
            with suppress(CheckpointError):  # what comes first is what the user needs
                store.close()
        raise
    finally:
        callback.end(result)
    if ordinal == 0:
        result.write(directory)


def _callbacks(config: Config, directory: Path, pruning: Pruning | None) -> dict[str, Callback]:
    ours: dict[str, Callback] = {"pruning": pruning} if pruning else {}
    return {"progress bar": ProgressBar(), **callbacks(config, directory), **ours}


def _evaluate(given: Path, config: Config, directory: Path, parts: Parts, compiled: int) -> None:
    """Evaluates a checkpoint, and trains nothing."""
    started = time.perf_counter()
    path, content = restoring.found("checkpoint", given)
    try:
        load_weights(parts, content)
    except (KeyError, RuntimeError) as error:
        raise CheckpointError(
            f"checkpoint: {path} is the state of another model: {error}; give the options of the run that wrote it"
        ) from error
    first, step = runtime.ordinal() == 0, content["step"]
    if first:
        weights = "averaged weights" if "average" in content else "weights"
        _introduce(config, parts, directory, f"evaluates the {weights} after step {step} in {path}")
        written_with = content.get("config", {})
        if other := [k for k in ("model", "data", "criterion", "precision") if written_with.get(k) != config.raw[k]]:
            log.warning("the run that wrote it had other options under %s", ", ".join(other))
    callback = Callbacks(_callbacks(config, directory, None) if first else {})
    result = None
    try:
        metric = config.objective.metrics[0]
        callback.start(Run(config.raw, step, parts.steps_per_epoch, metric, step))
        metrics = measure(parts)
        callback.evaluate(step, metrics)
        result = Result(
            metric=metric,
            objective=metrics[metric],
            objectives={name: metrics[name] for name in config.objective.metrics},
            metrics=metrics,
            epochs=content["epoch"] + bool(content["samples"]),
            steps=step,
            replicas=parts.replicas,
            seconds=time.perf_counter() - started,
            compilations=runtime.compilations() - compiled,
        )
    finally:
        callback.end(result)
    if first:
        result.write(directory)


def _described(config: Config) -> dict[str, Any]:
    return {"config": dict(config.raw), "versions": environment.versions()}


def _introduce(config: Config, parts: Parts, directory: Path, plan: str) -> None:
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
        "%s with %s parameters on %s: %s",
        config.model.name,
        f"{parameters:,}",
        config.data.name,
        plan,
    )
