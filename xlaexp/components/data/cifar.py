"""CIFAR-10 and CIFAR-100."""

from collections.abc import Sequence
from pathlib import Path

from xlaexp.components.data.spec import Spec
from xlaexp.components.data.vision import Vision
from xlaexp.registry import DATASETS


class _Cifar(Vision):
    # torchvision compares every file with its checksum before it reads one: there cannot be fewer.
    _lengths = (50000, 10000)


@DATASETS.register("cifar10")
class Cifar10(_Cifar):
    """CIFAR-10: 50,000 coloured 32x32 images of ten kinds to train on, 10,000 to validate on.

    Args:
        root: directory that has ``cifar-10-batches-py``, or gets it.
        download: whether it may be downloaded.
        mean: see :class:`Vision`.
        std: see :class:`Vision`.

    Raises:
        ValueError: see :class:`Vision`.
    """

    spec = Spec((3, 32, 32), 10)
    _torchvision = "CIFAR10"
    _folder = "cifar-10-batches-py"
    _files = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch", "batches.meta")

    def __init__(
        self,
        root: Path,
        download: bool = True,
        mean: Sequence[float] = (0.4914, 0.4822, 0.4465),
        std: Sequence[float] = (0.2470, 0.2435, 0.2616),
    ) -> None:
        super().__init__(root, download, mean, std)


@DATASETS.register("cifar100")
class Cifar100(_Cifar):
    """CIFAR-100: as CIFAR-10, with a hundred kinds.

    Args:
        root: directory that has ``cifar-100-python``, or gets it.
        download: whether it may be downloaded.
        mean: see :class:`Vision`.
        std: see :class:`Vision`.

    Raises:
        ValueError: see :class:`Vision`.
    """

    spec = Spec((3, 32, 32), 100)
    _torchvision = "CIFAR100"
    _folder = "cifar-100-python"
    _files = ("train", "test", "meta")

    def __init__(
        self,
        root: Path,
        download: bool = True,
        mean: Sequence[float] = (0.5071, 0.4865, 0.4409),
        std: Sequence[float] = (0.2673, 0.2564, 0.2762),
    ) -> None:
        super().__init__(root, download, mean, std)
