"""A data set that breaks in the middle of an epoch."""

import ctypes
import os
import signal
import time
from pathlib import Path

import torch
from torch.utils.data import get_worker_info

from xlaexp.components.data.spec import Spec
from xlaexp.registry import DATASETS
from xlaexp.xla import runtime


class Samples(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    """128 samples; ``fault`` says what becomes of sample 5."""

    def __init__(self, fault: str, ordinal: int) -> None:
        self._fault, self._ordinal = fault, ordinal

    def __len__(self) -> int:
        return 128

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        width = 4
        if index == 5:
            match self._fault:
                case "sample":
                    raise RuntimeError(f"sample {index} is broken")
                case "collation":
                    width = 3
                case "killed" if get_worker_info():
                    os.kill(os.getpid(), signal.SIGKILL)
                case "dies":
                    os.kill(os.getpid(), signal.SIGKILL)
                case "hang":
                    Path("hangs").write_text(str(self._ordinal))
                    time.sleep(1000)
                case "gil":
                    ctypes.PyDLL(None).sleep(1000)
                case "nonfinite":
                    return torch.full((width,), torch.nan), 0
        return torch.full((width,), float(index % 4)), index % 4


@DATASETS.register("faulty")
class Faulty:
    """Training samples with a fault, and validation samples with one of their own."""

    def __init__(self, fault: str = "none", val_fault: str = "none") -> None:
        self.spec = Spec((4,), 4)
        self._fault, self._val_fault = fault, val_fault

    def lengths(self) -> tuple[int, int]:
        return 128, 128

    def train(self) -> Samples:
        return Samples(self._fault, runtime.ordinal())

    def val(self) -> Samples:
        return Samples(self._val_fault, runtime.ordinal())
