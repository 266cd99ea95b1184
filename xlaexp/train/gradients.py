"""Forward and backward of a batch."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

Criterion = Callable[[Any, Any], torch.Tensor]


def per_sample(losses: torch.Tensor, samples: int) -> torch.Tensor:
    """Losses of shape (samples,) from what a criterion returned.

    Args:
        losses: one loss a sample, or several a sample (tokens, pixels), which are averaged.
        samples: batch size.

    Raises:
        ValueError: the criterion averaged over the batch, so that padding cannot be masked.
    """
    if losses.ndim == 0 or len(losses) != samples:
        raise ValueError(
            f"the criterion returned a tensor of shape {tuple(losses.shape)} for {samples} samples; it has to return "
            "one loss a sample (reduction='none'), so that an evaluation counts each sample once"
        )
    return losses if losses.ndim == 1 else losses.flatten(1).mean(1)


class Gradients:
    """Forward and backward of one batch; sums the losses on the device until they are taken.

    Args:
        model: on the device.
        criterion: returns one loss a sample.
        optimizer: whose gradients are cleared first.
        device: where the sum is kept.
    """

    def __init__(self, model: nn.Module, criterion: Criterion, optimizer: Optimizer, device: torch.device) -> None:
        self._model = model
        self._criterion = criterion
        self._optimizer = optimizer
        self._device = device
        self._losses = self._zero()

    def __call__(self, batch: Any) -> None:
        """Records forward and backward of a batch (inputs, targets)."""
        inputs, targets = batch
        self._optimizer.zero_grad()
        loss = per_sample(self._criterion(self._model(inputs), targets), len(targets)).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        # Not in place: that costs ten times as much to record (torch checks shapes in Python for it).
        self._losses = self._losses + loss.detach()

    def take(self) -> torch.Tensor:
        """The sum of the losses since the last call; to be read after the next mark only."""
        taken, self._losses = self._losses, self._zero()
        return taken

    def _zero(self) -> torch.Tensor:
        # Uploaded, not made on the device, and not of shape (): both would be a constant of the graph, so that
        # the step after a reading would be another graph than the others.
        return torch.zeros(1).to(self._device)
