"""A small convolutional network."""

from collections.abc import Sequence
from typing import cast

import torch
from torch import nn

from xlaexp.registry import MODELS


@MODELS.register("cnn")
class CNN(nn.Module):
    """3x3 convolutions with batch normalisation, halving the image after each, then global average pooling.

    Args:
        num_classes: outputs.
        input_shape: (channels, height, width) of one sample.
        channels: output channels of each convolution.
        dropout: probability with which a pooled feature is dropped.

    Raises:
        ValueError: samples are no images, or too small to be halved once a convolution.
    """

    def __init__(
        self,
        num_classes: int,
        input_shape: Sequence[int],
        channels: Sequence[int] = (32, 64),
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if len(input_shape) != 3 or min(input_shape[1:]) < 2 ** len(channels):
            raise ValueError(
                f"model 'cnn' with {len(channels)} convolutions takes (channels, height, width) of at least "
                f"{2 ** len(channels)} pixels a side, not {tuple(input_shape)}; shorten model.channels"
            )
        layers: list[nn.Module] = []
        width = input_shape[0]
        for out in channels:
            layers += [nn.Conv2d(width, out, 3, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU()]
            layers += [nn.MaxPool2d(2)]
            width = out
        head: list[nn.Module] = [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        head += [nn.Dropout(dropout)] if dropout else []
        self.layers = nn.Sequential(*layers, *head, nn.Linear(width, num_classes))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Logits of shape (batch, num_classes) for images of shape (batch, channels, height, width)."""
        return cast(torch.Tensor, self.layers(inputs))
