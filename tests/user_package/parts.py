"""Components that misbehave, or leave traces."""

import json
import logging
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import nn

from xlaexp.components.data.arrays import ArrayDataset
from xlaexp.components.data.spec import Spec
from xlaexp.registry import DATASETS, MODELS
from xlaexp.xla import runtime

log = logging.getLogger("user_package")


@DATASETS.register("numbered")
class Numbered:
    """Sample i has label i."""

    def __init__(self, samples: int = 10) -> None:
        self.spec = Spec((1,), samples)
        self._samples = samples

    def train(self) -> ArrayDataset:
        numbers = np.arange(self._samples)
        return ArrayDataset(numbers.astype(np.float32)[:, None], numbers)

    def val(self) -> ArrayDataset:
        return self.train()


class Poisoned(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    """Raises at one sample, or ends the process there."""

    def __init__(self, samples: int, at: int, deadly: bool) -> None:
        self._samples, self._at, self._deadly = samples, at, deadly

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if index == self._at:
            if self._deadly:
                os._exit(7)
            raise RuntimeError(f"sample {index} is poisoned")
        return torch.full((4,), float(index % 4)), index % 4


@DATASETS.register("poisoned")
class PoisonedData:
    """Good validation samples, and one bad training sample."""

    def __init__(self, at: int = 5, deadly: bool = False, samples: int = 64) -> None:
        self.spec = Spec((4,), 4)
        self._arguments = (samples, at, deadly)

    def train(self) -> Poisoned:
        return Poisoned(*self._arguments)

    def val(self) -> Poisoned:
        return Poisoned(self._arguments[0], -1, False)


@DATASETS.register("talkative")
class Talkative(PoisonedData):
    """Logs when it is built, and leaves a file for each replica in ``root``."""

    def __init__(self, root: str = ".") -> None:
        super().__init__(at=-1)
        log.info("information from a replica")
        log.warning("warning from a replica")
        addresses = os.environ.get("TPU_PROCESS_ADDRESSES", "none")
        (Path(root) / f"seen-{runtime.ordinal()}").write_text(addresses)


@DATASETS.register("noted")
class Noted(PoisonedData):
    """Leaves a file in ``root`` that says where and with what it was built."""

    def __init__(self, root: Path, label: str = "noted", note: str = "") -> None:
        super().__init__(at=-1)
        root.mkdir(parents=True, exist_ok=True)
        content = {"note": note, "cwd": os.getcwd(), "variable": os.environ.get("NOTED")}
        (root / f"{label}.json").write_text(json.dumps(content))


@MODELS.register("unseeded")
class Unseeded(nn.Module):
    """Starts from weights that no seed determines."""

    def __init__(self, num_classes: int, input_shape: tuple[int, ...], dropout: float = 0.5) -> None:
        super().__init__()
        width = int(np.prod(input_shape))
        self.linear = nn.Linear(width, num_classes)
        self.dropout = nn.Dropout(dropout)
        with torch.no_grad():
            self.linear.weight.fill_(random.SystemRandom().random())

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return cast(torch.Tensor, self.linear(self.dropout(inputs.flatten(1))))


@MODELS.register("slow_start")
class SlowStart(nn.Module):
    """Takes so long to draw its weights that all replicas have begun."""

    def __init__(self, num_classes: int, input_shape: tuple[int, ...]) -> None:
        super().__init__()
        time.sleep(1)
        self.linear = nn.Linear(int(np.prod(input_shape)), num_classes)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return cast(torch.Tensor, self.linear(inputs.flatten(1)))


@DATASETS.register("troubled")
class Troubled(PoisonedData):
    """Ends in a way that ``job`` chooses, as long as there is a file ``broken``; 5 and more are well."""

    def __init__(self, job: int = 99) -> None:
        super().__init__(at=-1)
        if not Path("broken").exists():
            return
        match job:
            case 0:
                raise RuntimeError("this job is troubled")
            case 1:
                sys.exit(3)
            case 2:
                os.abort()
            case 3:
                os.kill(os.getpid(), signal.SIGKILL)
            case 4:
                time.sleep(600)


@MODELS.register("tied")
class Tied(nn.Module):
    """An autoencoder of classes whose two layers share their weight."""

    def __init__(self, num_classes: int, input_shape: tuple[int, ...]) -> None:
        super().__init__()
        self.encoder = nn.Linear(int(np.prod(input_shape)), num_classes, bias=False)
        self.decoder = nn.Linear(int(np.prod(input_shape)), num_classes, bias=False)
        self.decoder.weight = self.encoder.weight

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        flat = inputs.flatten(1)
        return cast(torch.Tensor, self.encoder(flat) + self.decoder(2 * flat))


@DATASETS.register("noisy")
class Noisy(PoisonedData):
    """Samples that draw from every random stream of the host."""

    def __init__(self) -> None:
        super().__init__(at=-1)

    def train(self) -> Poisoned:
        return NoisySamples(64, -1, False)


class NoisySamples(Poisoned):
    """Adds noise."""

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        inputs, label = super().__getitem__(index)
        return inputs + torch.rand(4) + float(np.random.rand()) + random.random(), label


class Block(nn.Module):
    """A residual block with all that computing it twice could spoil."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)
        self.dropout = nn.Dropout(0.3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs + cast(torch.Tensor, self.dropout(self.norm(self.conv(inputs)).relu()))


class Residual(nn.Module):
    """A small residual network."""

    def __init__(self, num_classes: int, input_shape: tuple[int, ...]) -> None:
        super().__init__()
        self.stem = nn.Conv2d(input_shape[0], 4, 3)
        self.blocks = nn.Sequential(Block(4), Block(4))
        self.head = nn.Linear(4, num_classes)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return cast(torch.Tensor, self.head(self.blocks(self.stem(inputs)).mean((2, 3))))
