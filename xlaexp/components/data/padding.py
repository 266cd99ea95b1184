"""Sequences of different lengths in batches of few shapes: each shape is a graph of its own to compile."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree
from torch.utils.data import default_collate

IGNORED = -100
"""The label of padding, torch's own ``ignore_index``: losses and metrics are means over a sample's other labels."""


@dataclass(frozen=True)
class Padding:
    """Collates samples after it has padded them, at their ends, to one length.

    Every tensor and array of the inputs is padded along its first dimension, and so is every one of the targets that
    holds whole numbers; numbers themselves, and targets that are real numbers, stay as they are.

    Args:
        to: the length is the next multiple of a number, or the first of several lengths that is enough.
        value: what the inputs are padded with; targets with -100, which counts neither in a loss nor in a metric.
    """

    to: int | Sequence[int]
    value: float = 0.0

    def __call__(self, samples: Sequence[Any]) -> Any:
        """The batch.

        Raises:
            ValueError: a sample is longer than every length that there is.
        """
        flat = [pytree.tree_flatten(self._marked(sample)) for sample in samples]
        length = self.length(
            max((len(leaf.tensor) for leaves, _ in flat for leaf in leaves if isinstance(leaf, _Leaf)), default=0)
        )
        return default_collate(
            [
                pytree.tree_unflatten(
                    [leaf.padded(length) if isinstance(leaf, _Leaf) else leaf for leaf in leaves], tree
                )
                for leaves, tree in flat
            ]
        )

    def length(self, needed: int) -> int:
        """The length that a batch gets.

        Args:
            needed: of its longest sample.

        Raises:
            ValueError: it is longer than every length that there is.
        """
        if isinstance(self.to, int):
            return self.to * max(1, math.ceil(needed / self.to))
        if needed > max(self.to):
            lengths = ",".join(map(str, sorted({*self.to, needed})))
            raise ValueError(
                f"a sample of length {needed} is longer than {max(self.to)}, the greatest of loader.pad_to; shorten it "
                f"in the data set, or give loader.pad_to=[{lengths}]"
            )
        return min(length for length in self.to if length >= needed)

    def _marked(self, sample: Any) -> Any:
        inputs, *targets = sample
        return (
            pytree.tree_map(lambda leaf: _leaf(leaf, self.value), inputs),
            *pytree.tree_map(lambda leaf: _leaf(leaf, IGNORED, whole=True), targets),
        )


@dataclass(frozen=True)
class _Leaf:
    tensor: torch.Tensor
    value: float

    def padded(self, length: int) -> torch.Tensor:
        padded = self.tensor.new_full((length, *self.tensor.shape[1:]), self.value)
        padded[: len(self.tensor)] = self.tensor
        return padded


def _leaf(given: Any, value: float, whole: bool = False) -> Any:
    if isinstance(given, np.ndarray):
        given = torch.as_tensor(given)
    if not isinstance(given, torch.Tensor) or given.ndim == 0 or (whole and given.is_floating_point()):
        return given
    return _Leaf(given, value)
