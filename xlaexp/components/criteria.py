"""Criteria: ``@CRITERIA.register``; with ``reduction="none"`` they return one loss a sample."""

import torch
import torch.nn.functional as F
from torch import nn

from xlaexp.registry import CRITERIA


@CRITERIA.register("cross_entropy")
class CrossEntropy(nn.CrossEntropyLoss):
    """Cross entropy of logits and labels (:class:`torch.nn.CrossEntropyLoss`).

    Args:
        label_smoothing: part of a label that is spread over all classes, in [0, 1).
        reduction: as in torch.
    """

    def __init__(self, label_smoothing: float = 0.0, reduction: str = "mean") -> None:
        super().__init__(label_smoothing=label_smoothing, reduction=reduction)


@CRITERIA.register("mse")
class MSE(nn.Module):
    """Squared error, averaged over the outputs of a sample; labels become one-hot vectors (Brier 1950).

    Args:
        reduction: "none" or "mean".
    """

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = reduction

    def forward(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Losses of shape (batch,), or their mean.

        Args:
            outputs: shape (batch, outputs).
            targets: labels of shape (batch,), or values of the outputs' shape.
        """
        if targets.ndim < outputs.ndim:
            targets = F.one_hot(targets, outputs.shape[1]).to(outputs.dtype)
        losses = (outputs - targets).square().flatten(1).mean(1)
        return losses if self.reduction == "none" else losses.mean()
