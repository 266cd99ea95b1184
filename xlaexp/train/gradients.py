"""Forward and backward of a batch, and what happens to gradients and weights around the optimizer's step."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from xlaexp.components.data.padding import IGNORED

Criterion = Callable[[Any, Any], torch.Tensor]


def mean_of_each(values: torch.Tensor, targets: Any) -> torch.Tensor:
    """Values of shape (batch,): the mean of each sample's, without those whose label says that they do not count.

    Args:
        values: shape (batch, ...).
        targets: of the batch; -100 is the label of what does not count, where they are labels of the values' shape.
    """
    if values.ndim == 1:
        return values
    values = values.flatten(1)
    if not isinstance(targets, torch.Tensor) or targets.is_floating_point() or targets.numel() != values.numel():
        return values.mean(1)
    counts = targets.reshape(values.shape) != IGNORED
    # Not multiplied: what is not counted may be infinite.
    return torch.where(counts, values, 0.0).sum(1) / counts.sum(1).clamp(min=1)


def per_sample(losses: torch.Tensor, targets: Any, samples: int) -> torch.Tensor:
    """Losses of shape (samples,) from what a criterion returned.

    Args:
        losses: one loss a sample, or several a sample (tokens, pixels), which are averaged.
        targets: of the batch; see :func:`mean_of_each`.
        samples: batch size.

    Raises:
        ValueError: the criterion averaged over the batch, so that padding cannot be masked.
    """
    if losses.ndim == 0 or len(losses) != samples:
        raise ValueError(
            f"the criterion returned a tensor of shape {tuple(losses.shape)} for {samples} samples; it has to return "
            "one loss a sample (reduction='none'), so that an evaluation counts each sample once"
        )
    return mean_of_each(losses, targets)


class Forward:
    """The model and the criterion, in the precision of the run.

    Args:
        model: on the device.
        criterion: returns one loss a sample.
        bf16: whether matrix products and convolutions are computed in bfloat16; parameters stay float32.
    """

    def __init__(self, model: nn.Module, criterion: Criterion, bf16: bool) -> None:
        self._model, self._criterion, self._bf16 = model, criterion, bf16

    def __call__(self, inputs: Any, targets: Any) -> tuple[Any, torch.Tensor]:
        """Outputs, and losses of shape (batch,)."""
        with torch.autocast("xla", dtype=torch.bfloat16, enabled=self._bf16):
            outputs = self._model(inputs)
            return outputs, per_sample(self._criterion(outputs, targets), targets, len(targets))


class Gradients:
    """Forward and backward of one batch; sums the losses on the device until they are taken.

    Args:
        forward: of a batch.
        optimizer: whose gradients are cleared first.
        device: where the sum is kept.
    """

    def __init__(self, forward: Forward, optimizer: Optimizer, device: torch.device) -> None:
        self._forward = forward
        self._optimizer = optimizer
        self._device = device
        self.losses = self._uploaded(0.0)

    def __call__(self, batch: Any, first: bool = True, weight: float = 1.0) -> None:
        """Records forward and backward of a batch (inputs, targets).

        Args:
            batch: on the device.
            first: whether it is the first of its optimizer step; the gradients of the others are added.
            weight: its part of the samples of the step.
        """
        inputs, targets = batch
        earlier = [] if first else self._taken()
        self._optimizer.zero_grad()
        _, losses = self._forward(inputs, targets)
        loss = losses.mean() if weight == 1.0 else losses.mean() * weight
        loss.backward()  # type: ignore[no-untyped-call]
        for parameter, gradient in earlier:
            # Not in place, as autograd would: what xm.reduce_gradients then writes would not reach ``parameter.grad``
            # (torch_xla 2.9.0), and each replica would step with its own gradient.
            parameter.grad = gradient if parameter.grad is None else gradient + parameter.grad
        # Not in place: that costs ten times as much to record (torch checks shapes in Python for it).
        self.losses = self.losses + loss.detach()

    def _taken(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Parameters and their gradients so far."""
        parameters = (parameter for group in self._optimizer.param_groups for parameter in group["params"])
        return [(parameter, parameter.grad) for parameter in parameters if parameter.grad is not None]

    def take(self) -> torch.Tensor:
        """The sum of the losses of shape (1,) since the last call; to be read after the next mark only."""
        taken, self.losses = self.losses, self._uploaded(0.0)
        return taken

    def give_back(self, losses: float) -> None:
        """Sets the sum of the losses to that of an interrupted run."""
        self.losses = self._uploaded(losses)

    def _uploaded(self, value: float) -> torch.Tensor:
        # Uploaded, not made on the device, and not of shape (): both would be a constant of the graph, so that
        # the step after a reading would be another graph than the others.
        return torch.tensor([value]).to(self._device)


class Clipping:
    """Limits the gradients right before the optimizer's step: after they have been reduced over replicas.

    Args:
        optimizer: whose gradients are limited, whoever calls its ``step``.
        norm: greatest 2-norm of all gradients together; None: no limit.
        value: greatest absolute value of each; None: no limit.

    Attributes:
        norm: of the gradients of the last step before they were limited, of shape (), if there is a limit to it.
    """

    def __init__(self, optimizer: Optimizer, norm: float | None, value: float | None) -> None:
        self._norm, self._value = norm, value
        self.norm: torch.Tensor | None = None
        if norm is not None or value is not None:
            optimizer.register_step_pre_hook(self._clip)

    def _clip(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        if self._value is not None:
            nn.utils.clip_grad_value_(parameters, self._value)
        if self._norm is not None:
            self.norm = nn.utils.clip_grad_norm_(parameters, self._norm).detach()
