"""MNIST and Fashion-MNIST."""

import math
import os
import struct
from collections.abc import Sequence
from pathlib import Path

from xlaexp.components.data.spec import Spec
from xlaexp.components.data.vision import Vision
from xlaexp.registry import DATASETS

_SIDES = (28, 28)
_BYTES = 0x0800
"""How an IDX file of bytes begins; the number of its dimensions is added to it."""


@DATASETS.register("mnist")
class Mnist(Vision):
    """MNIST: 60,000 grey 28x28 images of the digits 0 to 9 to train on, 10,000 to validate on.

    Files with fewer images are as good; their headers say how many there are.

    Args:
        root: directory that has ``MNIST/raw``, or gets it.
        download: whether it may be downloaded.
        mean: see :class:`Vision`.
        std: see :class:`Vision`.

    Raises:
        ValueError: see :class:`Vision`.
    """

    spec = Spec((1, *_SIDES), 10)
    _torchvision = "MNIST"
    _folder = "MNIST/raw"
    _files = (
        "train-images-idx3-ubyte",
        "train-labels-idx1-ubyte",
        "t10k-images-idx3-ubyte",
        "t10k-labels-idx1-ubyte",
    )
    _lengths = (60000, 10000)

    def __init__(
        self, root: Path, download: bool = True, mean: Sequence[float] = (0.1307,), std: Sequence[float] = (0.3081,)
    ) -> None:
        super().__init__(root, download, mean, std)

    def _counted(self) -> tuple[int, int]:
        try:
            train_images, train_labels, val_images, val_labels = (
                _entries(self._directory / name, _SIDES if "images" in name else ()) for name in self._files
            )
        except (OSError, ValueError) as error:
            raise self._damaged(str(error)) from error
        if (train_images, val_images) != (train_labels, val_labels):
            raise self._damaged(f"{self._directory} has other numbers of labels than of images")
        return train_images, val_images


@DATASETS.register("fashion_mnist")
class FashionMnist(Mnist):
    """Fashion-MNIST: as MNIST, with ten kinds of clothes.

    Args:
        root: directory that has ``FashionMNIST/raw``, or gets it.
        download: whether it may be downloaded.
        mean: see :class:`Vision`.
        std: see :class:`Vision`.

    Raises:
        ValueError: see :class:`Vision`.
    """

    _torchvision = "FashionMNIST"
    _folder = "FashionMNIST/raw"

    def __init__(
        self, root: Path, download: bool = True, mean: Sequence[float] = (0.2860,), std: Sequence[float] = (0.3530,)
    ) -> None:
        super().__init__(root, download, mean, std)


def _entries(path: Path, shape: tuple[int, ...]) -> int:
    """How many entries an IDX file of bytes has: by its header, which its size has to agree with.

    Args:
        path: the file.
        shape: what the shape of an entry has to be.

    Raises:
        ValueError: it is no such file, or not all of one.
    """
    layout = struct.Struct(f">{2 + len(shape)}I")
    with path.open("rb") as file:
        header = file.read(layout.size)
        size = os.fstat(file.fileno()).st_size
    if len(header) < layout.size:
        raise ValueError(f"{path} is damaged: it ends after {size} bytes")
    entries: int
    magic, entries, *sides = layout.unpack(header)
    if magic != _BYTES + 1 + len(shape) or tuple(sides) != shape:
        raise ValueError(f"{path} is damaged: it does not begin as it has to")
    expected = layout.size + entries * math.prod(shape)
    if size != expected:
        raise ValueError(f"{path} is damaged: it has {size} bytes, with {entries} entries it would have {expected}")
    return entries
