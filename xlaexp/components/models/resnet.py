"""torchvision's ResNet-18 for images of any channel count, small ones included."""

from collections.abc import Sequence

from torch import nn
from torchvision.models import resnet

from xlaexp.registry import MODELS

_SMALL = 64


@MODELS.register("resnet18")
def resnet18(num_classes: int, input_shape: Sequence[int]) -> nn.Module:
    """ResNet-18 (He et al. 2015, arXiv:1512.03385).

    Images of up to 64 pixels a side get the paper's stem for CIFAR (section 4.2): a 3x3 convolution of stride
    1 and no pooling, because the usual stem would shrink them by four before the first block.

    Args:
        num_classes: outputs.
        input_shape: (channels, height, width) of one sample.

    Raises:
        ValueError: samples are no images.
    """
    if len(input_shape) != 3:
        raise ValueError(f"model 'resnet18' takes (channels, height, width), not {tuple(input_shape)}")
    model: nn.Module = resnet.resnet18(num_classes=num_classes)
    channels, height, width = input_shape
    if max(height, width) <= _SMALL:
        model.conv1 = nn.Conv2d(channels, 64, 3, stride=1, padding=1, bias=False)
        model.maxpool = nn.Identity()
    elif channels != 3:
        model.conv1 = nn.Conv2d(channels, 64, 7, stride=2, padding=3, bias=False)
    return model
