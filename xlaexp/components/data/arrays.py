"""A data set that is in memory."""

from collections.abc import Sequence

import numpy as np
import torch
from torch.utils.data import Dataset

Sample = tuple[torch.Tensor, torch.Tensor]


class ArrayDataset(Dataset[Sample]):
    """Inputs and labels as two arrays with one entry a sample.

    Args:
        inputs: shape (samples, *input_shape).
        targets: shape (samples,).
    """

    draws_nothing = True

    def __init__(self, inputs: np.ndarray, targets: np.ndarray) -> None:
        self._inputs = torch.from_numpy(inputs)
        self._targets = torch.from_numpy(targets)

    def __len__(self) -> int:
        return len(self._targets)

    def __getitem__(self, index: int) -> Sample:
        return self._inputs[index], self._targets[index]

    def batch(self, indices: Sequence[int]) -> Sample:
        """Several samples at once, stacked: one copy instead of one a sample."""
        chosen = torch.as_tensor(indices)
        return self._inputs[chosen], self._targets[chosen]
