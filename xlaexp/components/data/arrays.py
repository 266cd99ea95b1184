"""Data sets that are in memory."""

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


class ImageDataset(Dataset[Sample]):
    """Images of 8 bits a pixel, made floating point and normalised a batch at a time: a quarter of the memory.

    Args:
        images: uint8, shape (samples, channels, height, width).
        targets: int64, shape (samples,).
        mean: of each channel, subtracted from pixels between 0 and 1.
        std: of each channel; the difference is divided by it.
    """

    draws_nothing = True

    def __init__(
        self, images: torch.Tensor, targets: torch.Tensor, mean: Sequence[float], std: Sequence[float]
    ) -> None:
        self._images, self._targets = images, targets
        means, stds = (torch.tensor(numbers, dtype=torch.float64).view(-1, 1, 1) for numbers in (mean, std))
        # (pixel / 255 - mean) / std, as one product and one sum.
        self._factor, self._summand = (1 / (255 * stds)).float(), (-means / stds).float()

    def __len__(self) -> int:
        return len(self._targets)

    def __getitem__(self, index: int) -> Sample:
        inputs, targets = self.batch([index])
        return inputs[0], targets[0]

    def batch(self, indices: Sequence[int]) -> Sample:
        """Several samples at once: float32 of shape (indices, channels, height, width), and their labels."""
        chosen = torch.as_tensor(indices)
        return self._images[chosen].float().mul_(self._factor).add_(self._summand), self._targets[chosen]
