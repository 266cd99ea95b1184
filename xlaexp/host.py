"""What machine this is, found without importing torch and without touching the XLA runtime."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

_GOOGLE_PCI_VENDOR = "0x1ae0"
# TPU v2/v3, v4, v5e, v5p, v6e, 7x and the two test ids, as torch_xla 2.9.0 lists them
# (torch_xla/_internal/tpu.py); reading them there would import torch.
_TPU_PCI_DEVICES = frozenset({"0x0027", "0x005e", "0x0063", "0x0062", "0x006f", "0x0076", "0x0056"})


@dataclass(frozen=True)
class Host:
    """The facts about this machine that decide how a run can be launched."""

    pjrt_device: str | None
    """PJRT_DEVICE as the user set it, or None."""
    tpu_chips: int
    """TPU chips on the PCI bus of this host."""
    libtpu: bool
    """Whether a libtpu can be loaded."""
    colab: bool
    """Whether this is a Colab runtime."""
    cpu_num_devices: int | None
    """CPU_NUM_DEVICES as the user set it, or None."""

    @property
    def platform(self) -> str:
        """The PJRT platform that a run will use: "TPU", "CPU" or whatever PJRT_DEVICE names."""
        if self.pjrt_device:
            return self.pjrt_device.split("_")[0].upper()
        return "TPU" if self.tpu_chips and self.libtpu else "CPU"


def detect(environ: Mapping[str, str] = os.environ, pci: Path = Path("/sys/bus/pci/devices")) -> Host:
    """Reads the environment and the PCI bus of this machine.

    Args:
        environ: environment variables.
        pci: directory with one entry a PCI device.
    """
    chips = sum(
        1
        for vendor in pci.glob("*/vendor")
        if vendor.read_text().strip() == _GOOGLE_PCI_VENDOR
        and (vendor.parent / "device").read_text().strip() in _TPU_PCI_DEVICES
    )
    cpu_devices = environ.get("CPU_NUM_DEVICES", "")
    return Host(
        pjrt_device=environ.get("PJRT_DEVICE") or None,
        tpu_chips=chips,
        libtpu="TPU_LIBRARY_PATH" in environ or find_spec("libtpu") is not None,
        colab="COLAB_RELEASE_TAG" in environ or "COLAB_TPU_ADDR" in environ,
        cpu_num_devices=int(cpu_devices) if cpu_devices.isdigit() else None,
    )


def this_host() -> Host:
    """This machine as it was when the process first asked: importing torch_xla sets PJRT_DEVICE by itself."""
    if not _remembered:
        _remembered.append(detect())
    return _remembered[0]


def remember(found: Host) -> None:
    """Makes :func:`this_host` answer what another process has found before it started this one."""
    _remembered[:] = [found]


_remembered: list[Host] = []
