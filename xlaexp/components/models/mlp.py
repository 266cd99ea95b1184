"""A multilayer perceptron."""

from collections.abc import Sequence
from typing import cast

import torch
from torch import nn

from xlaexp.registry import MODELS


@MODELS.register("mlp")
class MLP(nn.Module):
    """Linear layers with ReLU between them, on the flattened input.

    Args:
        num_classes: outputs.
        input_shape: shape of one sample.
        hidden: widths of the hidden layers; none makes it a linear model.
        dropout: probability with which a hidden value is dropped.
    """

    def __init__(
        self,
        num_classes: int,
        input_shape: Sequence[int],
        hidden: Sequence[int] = (256,),
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        width = 1
        for size in input_shape:
            width *= size
        layers: list[nn.Module] = [nn.Flatten()]
        for units in hidden:
            layers += [nn.Linear(width, units), nn.ReLU()]
            # A layer that drops nothing would still be traced in every step.
            layers += [nn.Dropout(dropout)] if dropout else []
            width = units
        self.layers = nn.Sequential(*layers, nn.Linear(width, num_classes))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Logits of shape (batch, num_classes) for inputs of shape (batch, *input_shape)."""
        return cast(torch.Tensor, self.layers(inputs))
