"""What contradicts what: checks that need more than one config node, or the machine, to decide."""

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from xlaexp.config.schema import (
    AnyLoader,
    Checkpoint,
    Component,
    Config,
    Device,
    MpDeviceLoader,
    Objective,
    ParamGroup,
    ParamGroups,
    Strategy,
)
from xlaexp.host import Host
from xlaexp.registry import unknown

DEFAULT_CPU_REPLICAS = 2

_OLD_REPLICA_KEYS = frozenset(
    {"nprocs", "num_processes", "num_cores", "num_devices", "devices", "world_size", "n_procs"}
)


def hint(key: str) -> str | None:
    """Advice for a key that other tools have and xlaexp has not; None where there is none."""
    if key.endswith("._target_"):
        group = key.partition(".")[0]
        return f"a component of your own is chosen by its dotted path: {group}=my_package.module.Name"
    if key.rsplit(".", 1)[-1] in _OLD_REPLICA_KEYS:
        return (
            "torch_xla.launch takes no number of processes. On a CPU use device=multi device.replicas=N (it sets "
            "CPU_NUM_DEVICES); a TPU uses every chip unless TPU_NUM_DEVICES says otherwise"
        )
    return None


def strategy(name: str, device: Device, loader: AnyLoader) -> Strategy:
    """The strategy that "auto" stands for, or the named one where nothing contradicts it.

    Raises:
        ValueError: the name is unknown or contradicts device or loader; the message says why and names the fix.
    """
    replicas: Strategy = "barrier" if device.launch == "multi" else "sync"
    implied: Strategy = "loader" if isinstance(loader, MpDeviceLoader) else replicas
    if name in ("auto", implied):
        return implied
    where = f"device={device.launch} loader={loader.name}"
    match name:
        case "loader":
            why, fix = (
                "nothing would mark the step there, so that not one step would run",
                "loader=mp_device_loader",
            )
        case "sync" | "barrier" if isinstance(loader, MpDeviceLoader):
            why, fix = "the loader marks the step, and a second mark each step costs speed", "loader=plain"
        case "sync":
            why, fix = "without a reduction of the gradients the replicas would drift apart", "device=single"
        case "barrier":
            why, fix = (
                "it reduces gradients over replicas, and one replica has none to reduce with",
                "device=multi",
            )
        case _:
            raise ValueError(f"strategy: {unknown('strategy', name, ('auto', 'sync', 'barrier', 'loader'))}")
    raise ValueError(
        f"strategy: strategy={name} contradicts {where}: {why}; use {fix}, or strategy=auto, which picks {implied}"
    )


def device(given: Device, host: Host) -> tuple[Device, list[str]]:
    """The device node with its replicas filled in, and what this machine rules out."""
    if given.launch == "multi":
        return _multi(given, host)
    problems = []
    if given.replicas not in (None, 1):
        problems.append(
            f"device.replicas: device={given.launch} runs one replica, not {given.replicas}; "
            "use device=multi, or leave device.replicas out"
        )
    if given.launch == "colab" and host.platform != "TPU" and (host.pjrt_device or "").upper() != "CPU":
        problems.append(
            "device: device=colab found no TPU; choose a TPU under Runtime > Change runtime type, or set "
            "PJRT_DEVICE=CPU to run on the CPU on purpose, or use device=single"
        )
    return replace(given, replicas=1), problems + _libtpu(host)


def _multi(given: Device, host: Host) -> tuple[Device, list[str]]:
    problems = _libtpu(host)
    if host.colab:
        problems.append(
            "device: device=multi cannot start in a Colab runtime (torch_xla.launch over several replicas ends with "
            "a worker address mismatch before the function starts); use device=colab, which runs one replica"
        )
    if host.platform == "TPU":
        if given.replicas is not None:
            problems.append(
                "device.replicas: a TPU runs one replica a chip; leave device.replicas out, and limit the chips "
                f"with the environment variable TPU_NUM_DEVICES={given.replicas}"
            )
        return given, problems
    preset = host.cpu_num_devices
    if given.replicas is not None and preset is not None and given.replicas != preset:
        problems.append(
            f"device.replicas: CPU_NUM_DEVICES={preset} is set in the environment and contradicts "
            f"device.replicas={given.replicas}; unset it or use device.replicas={preset}"
        )
    return replace(given, replicas=given.replicas or preset or DEFAULT_CPU_REPLICAS), problems


def _libtpu(host: Host) -> list[str]:
    if host.tpu_chips and not host.libtpu and host.pjrt_device is None:
        return [
            f"device: this machine has {host.tpu_chips} TPU chips but no libtpu; install it with "
            "pip install 'xlaexp[tpu]', or set PJRT_DEVICE=CPU to run on the CPU on purpose"
        ]
    return []


def metrics(given: Collection[str]) -> tuple[list[str], list[str]]:
    """What an evaluation yields with metrics of these names, and what is wrong with the names."""
    problems = [
        f"metrics.{name}: an evaluation yields val/{name} without it; give it another name"
        for name in given
        if name in ("loss",)
    ]
    return ["val/loss", *(f"val/{name}" for name in given)], problems


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
    return f"{unknown('metric', name, yielded)}, of which metrics=... chooses all but val/loss"


def checkpoint(given: Checkpoint, objective: Objective, yielded: Collection[str]) -> tuple[Checkpoint, list[str]]:
    """The node with its metric and mode filled in, and what is wrong with them."""
    if given.metric is None:
        return replace(given, metric=objective.metrics[0], mode=given.mode or objective.modes[0]), []
    problems = []
    if given.metric not in yielded:
        problems.append(f"checkpoint.metric: {_no_metric(given.metric, yielded)}")
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


def data(
    config: Config,
    host: Host,
    lengths: tuple[int, int],
    input_shape: tuple[int, ...],
    args: Mapping[str, Any],
) -> list[str]:
    """What the size and shape of the data rule out.

    Args:
        config: the checked config.
        host: the machine that runs it.
        lengths: training and validation samples.
        input_shape: shape of one sample.
        args: arguments of the data component, to name the override that fits it.
    """
    problems = []
    replicas = config.replicas or host.tpu_chips or 1
    train, val = lengths
    if message := zero_batches(train, config.loader.batch_size, replicas, config.loader.drop_last):
        problems.append(message)
    if not val:
        problems.append("data: there is no validation sample to evaluate on; give data.val_fraction or data.val_size")
    if _is_torchvision(config.model) and len(input_shape) == 3 and input_shape[0] != 3:
        fix = "data.channels=3" if "channels" in args or config.data.accepts & {"channels"} else "data with RGB images"
        problems.append(
            f"model: {config.model.name} takes images of 3 channels, the data has {input_shape[0]}; use {fix}"
        )
    return problems


def _is_torchvision(model: Component) -> bool:
    return model.module.split(".")[0] == "torchvision"


def zero_batches(samples: int, batch_size: int, replicas: int, drop_last: bool) -> str | None:
    """The error for a training epoch that has no batch; None where it has one.

    With ``drop_last`` every replica gets ``samples // replicas`` samples and only whole batches of them.
    """
    if samples >= replicas * batch_size or (samples and not drop_last):
        return None
    share = samples // replicas
    fixes = ([f"loader.batch_size={share} or less"] if share else []) + (["loader.drop_last=false"] if samples else [])
    return (
        f"loader.batch_size: not one training batch: n={samples} samples over ws={replicas} replicas are {share} each, "
        f"fewer than a batch of bs={batch_size}; use {' or '.join(fixes) or 'more samples'}"
    )
