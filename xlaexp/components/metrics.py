"""Metrics: ``@METRICS.register``; what an evaluation measures besides the loss.

A metric is called with the outputs of a model and the targets. One whose ``per_sample`` is true returns a value a
sample, is computed on the device, and the mean of its values is what an evaluation yields: nothing but one sum is read.
Any other is computed on the host (:mod:`xlaexp.train.metrics`).
"""

import torch

from xlaexp.registry import METRICS


@METRICS.register("accuracy")
class Accuracy:
    """Part of the labels that have the greatest output."""

    per_sample = True

    def __call__(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """1 for a hit, 0 for a miss, of the shape of the targets.

        Args:
            outputs: shape (batch, classes, ...).
            targets: labels of shape (batch, ...).

        Raises:
            ValueError: the targets are no labels.
        """
        return (_labels(outputs, targets) == outputs.argmax(1)).to(torch.float32)


@METRICS.register("top_k")
class TopK:
    """Part of the labels that are among those with the ``k`` greatest outputs.

    Args:
        k: at least 1, and at most the number of classes.
        num_classes: labels of the data.

    Raises:
        ValueError: there are fewer classes.
    """

    per_sample = True

    def __init__(self, k: int = 5, num_classes: int | None = None) -> None:
        if k < 1 or (num_classes is not None and k > num_classes):
            raise ValueError(f"top_k: k={k} has to be between 1 and the number of classes ({num_classes})")
        self._k = k

    def __call__(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """1 for a hit, 0 for a miss, of the shape of the targets; see :class:`Accuracy`."""
        best = outputs.topk(self._k, dim=1).indices
        return (_labels(outputs, targets).unsqueeze(1) == best).any(1).to(torch.float32)


def _labels(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    if outputs.ndim < 2 or targets.shape != outputs.shape[:1] + outputs.shape[2:]:
        # They would be broadcast against each other, to a number that means nothing.
        raise ValueError(
            f"it needs outputs of shape (batch, classes, ...) and labels of shape (batch, ...), not "
            f"{tuple(outputs.shape)} and {tuple(targets.shape)}; choose other metrics, or none with metrics=none and "
            "objective.metric=val/loss objective.mode=min"
        )
    return targets
