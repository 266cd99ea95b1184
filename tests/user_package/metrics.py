"""Metrics as a user writes them: each gives its number as something else."""

from typing import Any

import numpy as np
import torch

from xlaexp.registry import METRICS


def python_number(outputs: torch.Tensor, targets: torch.Tensor, scale: float = 1.0) -> float:
    """A Python number, which depends on the order of the samples."""
    hits = (outputs.argmax(1) == targets).double()
    return scale * float((hits * torch.arange(len(hits))).sum())


def numpy_scalar(outputs: torch.Tensor, targets: torch.Tensor) -> Any:
    """A numpy scalar: the median, which no sum over replicas gives."""
    return np.median(outputs.numpy().max(1))


@METRICS.register("tensor")
class Tensor:
    """A tensor without dimensions."""

    def __call__(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return outputs.max()


@METRICS.register("a_value_a_sample")
def a_value_a_sample(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """One value a sample, on the host."""
    return outputs[torch.arange(len(targets)), targets]


class Summed:
    """The same, on the device."""

    per_sample = True

    def __call__(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return outputs.gather(1, targets[:, None])


class Classes:
    """An object with a state of its own, which cannot be reset: the number of classes that the model names."""

    def __init__(self) -> None:
        self._named: set[int] = set()

    def update(self, outputs: torch.Tensor, targets: torch.Tensor) -> None:
        self._named |= set(outputs.argmax(1).tolist())

    def compute(self) -> int:
        return len(self._named)


def nothing(outputs: torch.Tensor, targets: torch.Tensor) -> None:
    """Forgets to return."""
