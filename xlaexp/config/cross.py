"""What contradicts what: checks that need more than one config node, or the machine, to decide."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from xlaexp.config.schema import (
    AnyLoader,
    Component,
    Config,
    Device,
    MpDeviceLoader,
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


def padding(loader: AnyLoader, device: Device) -> list[str]:
    """Refuses batches of several lengths over several replicas: in one step they would run different graphs."""
    if (
        device.launch != "multi"
        or loader.pad_to is None
        or (isinstance(loader.pad_to, tuple) and len(loader.pad_to) == 1)
    ):
        return []
    longest = loader.pad_to if isinstance(loader.pad_to, int) else max(loader.pad_to)
    return [
        "loader.pad_to: with device=multi the replicas' batches would get different lengths in one step, and their "
        f"graphs have to be the same; give one length, as in loader.pad_to=[{longest}], or use device=single"
    ]


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
