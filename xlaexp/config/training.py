"""Checks of what is trained and what is kept: objective, checkpoints, precision, groups of parameters."""

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from xlaexp.config.schema import Checkpoint, Component, Objective, ParamGroup, ParamGroups, Train
from xlaexp.registry import unknown


def objective(given: Objective, yielded: Collection[str]) -> list[str]:
    """Refuses a metric that no evaluation yields, and other than one mode for each."""
    problems = [f"objective.metric: {_no_metric(m, yielded)}" for m in given.metrics if m not in yielded]
    if not given.metrics or len(set(given.metrics)) != len(given.metrics):
        problems.append("objective.metric: name at least one metric, and each one once")
    if len(given.modes) != len(given.metrics):
        problems.append(
            f"objective.mode: {len(given.modes)} modes for {len(given.metrics)} metrics; give max or min for each, "
            "as in objective.metric=[val/accuracy,val/loss] objective.mode=[max,min]"
        )
    return problems


def _no_metric(name: str, yielded: Collection[str]) -> str:
    return f"{unknown('metric', name, yielded)}, of which metrics=... chooses those of an evaluation but for val/loss"


def checkpoint(
    given: Checkpoint, objective: Objective, yielded: Collection[str], train: Train | None
) -> tuple[Checkpoint, list[str]]:
    """The node with its metric and mode filled in, and what is wrong with them."""
    if given.metric is None:
        return replace(given, metric=objective.metrics[0], mode=given.mode or objective.modes[0]), []
    problems = []
    if given.metric == "train/grad_norm" and train and train.clip_norm is None:
        problems.append("checkpoint.metric: train/grad_norm is known with a limit only; give train.clip_norm=...")
    elif given.metric not in (logged := [*yielded, "train/loss", "train/grad_norm"]):
        problems.append(f"checkpoint.metric: {_no_metric(given.metric, logged)}")
    elif given.mode is None and given.metric not in objective.metrics:
        problems.append(f"checkpoint.mode: say whether more {given.metric} is better: max, or min")
    modes = dict(zip(objective.metrics, objective.modes, strict=False))
    return replace(given, mode=given.mode or modes.get(given.metric)), problems


NOTHING_SAVED: Mapping[str, Any] = {"every": 1, "unit": "epoch", "keep_last": 1, "metric": None, "mode": None}
"""The node ``checkpoint`` where a path stands in its place."""


def evaluated(raw: Mapping[str, Any], directory: Path) -> tuple[str | None, list[str]]:
    """The path that stands in place of the node ``checkpoint``, and what is wrong with it.

    Args:
        raw: the whole config as plain data.
        directory: what the path is relative to.
    """
    given, only = raw.get("checkpoint"), raw.get("mode") == "eval"
    if not isinstance(given, str):
        return None, ["checkpoint: mode=eval needs one; give checkpoint=PATH, a file or a run's directory"] * only
    path = Path(directory, Path(given).expanduser())
    problems = []
    if not only:
        problems.append(
            f"checkpoint: a path says what mode=eval evaluates; to train on from it, use resume={given} and leave "
            "checkpoint out"
        )
    elif not path.exists():
        problems.append(f"checkpoint: there is no file or directory {path}")
    if only and raw.get("resume") is not None:
        problems.append("resume: mode=eval evaluates checkpoint=PATH, and trains nothing; leave resume out")
    return str(path), problems


def param_groups(raw: Any, optimizer: Component | None) -> tuple[ParamGroups, list[str]]:
    """The node ``param_groups``, and what is wrong with it.

    Args:
        raw: plain data.
        optimizer: whose options its groups may set; None where it is not known.
    """
    allowed = (optimizer.accepts if optimizer else frozenset()) - {"params"}
    if raw in ("all", "no_decay"):
        if raw == "no_decay" and optimizer and "weight_decay" not in allowed:
            return "all", [f"param_groups: optimizer {optimizer.name!r} has no weight_decay; use param_groups=all"]
        return raw, []
    example = "all, no_decay, or a list such as [{params: bias, lr: 0.01}]"
    if not isinstance(raw, list) or not raw:
        return "all", [f"param_groups: has to be {example}"]
    groups, problems = [], []
    for number, group in enumerate(raw):
        where = f"param_groups[{number}]"
        if not isinstance(group, Mapping) or not isinstance(group.get("params"), str):
            problems.append(f"{where}: needs params, a regular expression for the names of parameters; give {example}")
            continue
        try:
            re.compile(group["params"])
        except re.error as error:
            problems.append(f"{where}.params: {group['params']!r} is no regular expression: {error}")
        options = {str(name): value for name, value in group.items() if name != "params"}
        if optimizer:
            names = sorted(options.keys() - allowed)
            problems += [f"{where}: {unknown(f'option of {optimizer.name}', name, allowed)}" for name in names]
        groups.append(ParamGroup(group["params"], options))
    return tuple(groups), problems


def precision(raw: Any) -> list[str]:
    """Says why a precision is not there."""
    if raw in ("fp16", "float16", 16, "16-mixed", "fp16-mixed"):
        return [
            f"precision: {raw} needs a gradient scaler, which torch_xla has no more, and TPUs compute in bfloat16; use "
            "precision=bf16"
        ]
    return []
