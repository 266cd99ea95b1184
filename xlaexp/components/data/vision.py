"""What the data sets share that torchvision reads and downloads; without torch, until samples are asked for."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from xlaexp.components.data.spec import Spec

if TYPE_CHECKING:
    from xlaexp.components.data.arrays import ImageDataset

_UNREADABLE = (OSError, AssertionError, KeyError, RuntimeError, TypeError, ValueError)
"""What torchvision raises for files that are not what they should be."""


class Vision:
    """Images in the files and directories that torchvision's class of the same data set has them in.

    They are downloaded when samples are asked for and they are not there: once, whoever asks.

    Args:
        root: directory that the data set's own one is in, or is to be.
        download: whether it may be downloaded.
        mean: of each channel, subtracted from pixels between 0 and 1.
        std: of each channel; the difference is divided by it.

    Raises:
        ValueError: it is not there and may not be downloaded; files are missing or damaged; ``mean`` or ``std`` is not
            one number a channel, or a standard deviation is not positive.
    """

    spec: ClassVar[Spec]
    _torchvision: ClassVar[str]
    """The class of torchvision.datasets."""
    _folder: ClassVar[str]
    """Where it has its files, under its root."""
    _files: ClassVar[tuple[str, ...]]
    """All that have to be there."""
    _lengths: ClassVar[tuple[int, int]]
    """Images to train on and to validate on, as they were published."""

    def __init__(self, root: Path, download: bool, mean: Sequence[float], std: Sequence[float]) -> None:
        for name, numbers in (("mean", mean), ("std", std)):
            if len(numbers) != self.spec.input_shape[0]:
                raise ValueError(
                    f"data.{name}={list(numbers)} has to have one number for each of the "
                    f"{self.spec.input_shape[0]} channels of {self._torchvision}"
                )
        if not all(number > 0 for number in std):
            raise ValueError(f"data.std={list(std)} has a number that is not greater than 0")
        self._root, self._download, self._mean, self._std = root, download, mean, std
        self._directory = root / self._folder
        self._by_hand = f"put {', '.join(self._files)} into {self._directory}"
        if self._is_there():
            missing = [name for name in self._files if not os.path.isfile(self._directory / name)]
            if missing:
                raise self._damaged(f"{self._directory} is incomplete, it has no {', '.join(missing)}")
            self._counted()
        elif not download:
            raise ValueError(
                f"there is no {self._torchvision} in data.root={root}; {self._by_hand}, or allow data.download=true"
            )

    def lengths(self) -> tuple[int, int]:
        """Training and validation samples."""
        return self._counted() if self._is_there() else self._lengths

    def train(self) -> ImageDataset:
        """The samples to train on: float32 of ``spec.input_shape``, normalised, and a label.

        Raises:
            DownloadError: they are not there and cannot be downloaded.
            ValueError: files are damaged.
        """
        return self._part(train=True)

    def val(self) -> ImageDataset:
        """The test samples of the data set; otherwise as :meth:`train`."""
        return self._part(train=False)

    def _is_there(self) -> bool:
        return os.path.exists(self._directory)

    def _counted(self) -> tuple[int, int]:
        """The numbers of samples that files have which are there.

        Raises:
            ValueError: a file is damaged, as far as it takes no time to know that.
        """
        return self._lengths

    def _damaged(self, what: str) -> ValueError:
        return ValueError(f"{what}; {self._by_hand}, or remove that directory and allow data.download=true")

    def _part(self, train: bool) -> ImageDataset:
        import torch
        from torchvision import datasets

        from xlaexp.components.data.arrays import ImageDataset
        from xlaexp.components.data.downloads import ensure

        kind = getattr(datasets, self._torchvision)

        def fetch(directory: Path) -> Path:
            kind(directory, download=True)  # reads it, too: what cannot be read does not get its name
            return directory / self._folder

        if self._download:
            ensure(self._directory, self._torchvision, self._by_hand, fetch)
        try:
            read = kind(self._root, train=train)
        except _UNREADABLE as error:
            said = str(error).partition(". You can use download=True")[0]  # an argument that only torchvision has
            raise self._damaged(f"{self._directory} cannot be read: {type(error).__name__}: {said}") from error
        images, targets = torch.as_tensor(read.data), torch.as_tensor(read.targets)
        if int(targets.max()) >= self.spec.num_classes:
            raise self._damaged(f"{self._directory} has labels of up to {int(targets.max())}")
        # torchvision has grey images without a channel, and the channels of others last.
        images = images.unsqueeze(1) if images.ndim == 3 else images.permute(0, 3, 1, 2)
        return ImageDataset(images, targets, self._mean, self._std)
