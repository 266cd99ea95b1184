"""Which checkpoint a run goes on from, and how."""

import logging
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from xlaexp import checkpoint
from xlaexp.callbacks import Callback
from xlaexp.checkpoint import CheckpointError
from xlaexp.config.schema import Config
from xlaexp.train.parts import Parts
from xlaexp.train.readings import Readings
from xlaexp.train.saving import Saving
from xlaexp.train.state import Progress, restore

log = logging.getLogger("xlaexp")


def to_go_on_from(config: Config, directory: Path) -> tuple[Path, dict[str, Any]] | None:
    """The checkpoint that a config says to go on from, with its path; None where there is none.

    Raises:
        CheckpointError: what it names is not there, or damaged.
    """
    if config.resume is None:
        return None
    if config.resume == "auto":
        return checkpoint.newest(directory)
    return found("resume", Path(config.resume))


def found(key: str, path: Path) -> tuple[Path, dict[str, Any]]:
    """A checkpoint, or the newest good one of a run's directory, with its path.

    Args:
        key: of the config, for messages.
        path: of either.

    Raises:
        CheckpointError: there is none, or none that is good.
    """
    if path.is_file():
        return path, checkpoint.load(path)
    good = checkpoint.newest(path)
    if good is None:
        raise CheckpointError(f"{key}={path}: there is no checkpoint")
    return good


def rescaled(parts: Parts, config: Config, content: dict[str, Any]) -> Parts:
    """With as many steps as the samples take that are left, if other replicas have begun."""
    if content["replicas"] == parts.replicas:
        return parts
    parts.batches.start(content["epoch"], content["samples"])
    epochs_left = config.train.epochs - content["epoch"]
    steps = math.ceil(len(parts.batches) / config.train.accumulate) + (epochs_left - 1) * parts.steps_per_epoch
    total = content["step"] + (steps if epochs_left > 0 else 0)
    return replace(parts, total_steps=min(total, config.train.max_steps or total))


def resume(
    path: Path,
    content: dict[str, Any],
    parts: Parts,
    progress: Progress,
    readings: Readings,
    callback: Callback,
    saving: Saving,
) -> None:
    """Puts the state of a training back; all replicas have to call it.

    Raises:
        CheckpointError: it is that of another model or optimizer.
    """
    try:
        exact = restore(parts, progress, readings, content)
    except (KeyError, RuntimeError, ValueError) as error:
        raise CheckpointError(
            f"resume: {path} is the state of another model or optimizer: {error}; give the options of the run that "
            "wrote it"
        ) from error
    callback.restore(content["callbacks"])
    saving.best = content["best_value"]
    log.info("goes on from %s, after step %d", path, progress.step)
    if not exact:
        log.warning(
            "it was written by %d replicas, now there are %d: the samples go on where they stopped, the numbers will "
            "differ",
            content["replicas"],
            parts.replicas,
        )
