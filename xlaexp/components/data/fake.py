"""Random images, for load tests and for shapes that one has no data of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from xlaexp.components.data.spec import Spec
from xlaexp.registry import DATASETS

if TYPE_CHECKING:
    from xlaexp.components.data.arrays import ArrayDataset


@DATASETS.register("fake")
class Fake:
    """Normal noise around a random image for each class, so that the labels can be learned.

    Args:
        shape: shape of one sample.
        num_classes: number of labels.
        train_size: training samples.
        val_size: validation samples.
        data_seed: determines all of them.

    Raises:
        ValueError: a size is less than 1.
    """

    def __init__(
        self,
        shape: Sequence[int] = (3, 32, 32),
        num_classes: int = 10,
        train_size: int = 1024,
        val_size: int = 256,
        data_seed: int = 0,
    ) -> None:
        if not shape or min(*shape, num_classes, train_size, val_size) < 1:
            raise ValueError("data.shape, data.num_classes, data.train_size and data.val_size must be at least 1")
        self.spec = Spec(tuple(shape), num_classes)
        self._sizes = (train_size, val_size)
        self._seed = data_seed

    def lengths(self) -> tuple[int, int]:
        """Training and validation samples."""
        return self._sizes

    def train(self) -> ArrayDataset:
        """The training samples."""
        return self._part(0)

    def val(self) -> ArrayDataset:
        """The validation samples, which differ from the training samples."""
        return self._part(1)

    def _part(self, part: int) -> ArrayDataset:
        from xlaexp.components.data.arrays import ArrayDataset

        centres = np.random.default_rng([self._seed, 2]).normal(size=(self.spec.num_classes, *self.spec.input_shape))
        random = np.random.default_rng([self._seed, part])
        labels = random.integers(self.spec.num_classes, size=self._sizes[part])
        noise = random.normal(size=(self._sizes[part], *self.spec.input_shape))
        return ArrayDataset((0.5 * centres[labels] + noise).astype(np.float32), labels.astype(np.int64))
