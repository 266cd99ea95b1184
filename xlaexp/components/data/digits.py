"""scikit-learn's handwritten digits: real data without a download."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from xlaexp.components.data.spec import Spec
from xlaexp.registry import DATASETS

if TYPE_CHECKING:
    from xlaexp.components.data.arrays import ArrayDataset

SAMPLES = 1797
_SIDE = 8
_WHITE = 16.0


@DATASETS.register("digits")
class Digits:
    """1,797 grey 8x8 images of the digits 0 to 9 (sklearn.datasets.load_digits), with values in [-1, 1].

    Args:
        val_fraction: part of the samples that is held out for validation.
        split_seed: which ones; the same for every seed of a run, so that seeds can be compared.
        channels: 1, or more to repeat the grey channel.
        image_size: pixels a side, a multiple of 8; each pixel is repeated.

    Raises:
        ValueError: an argument is out of range.
    """

    def __init__(
        self, val_fraction: float = 0.2, split_seed: int = 0, channels: int = 1, image_size: int = _SIDE
    ) -> None:
        if not 0 < val_fraction < 1:
            raise ValueError(f"data.val_fraction={val_fraction} is not between 0 and 1")
        if channels < 1:
            raise ValueError(f"data.channels={channels} is less than 1")
        if image_size < _SIDE or image_size % _SIDE:
            raise ValueError(f"data.image_size={image_size} is not a multiple of {_SIDE}")
        self._held_out = round(SAMPLES * val_fraction)
        self._split_seed = split_seed
        self.spec = Spec((channels, image_size, image_size), 10)

    def lengths(self) -> tuple[int, int]:
        """Training and validation samples."""
        return SAMPLES - self._held_out, self._held_out

    def train(self) -> ArrayDataset:
        """The training samples."""
        return self._part(slice(self._held_out, None))

    def val(self) -> ArrayDataset:
        """The held out samples."""
        return self._part(slice(self._held_out))

    def _part(self, part: slice) -> ArrayDataset:
        from sklearn.datasets import load_digits

        from xlaexp.components.data.arrays import ArrayDataset

        images, labels = load_digits(return_X_y=True)
        chosen = np.random.default_rng(self._split_seed).permutation(SAMPLES)[part]
        channels, side, _ = self.spec.input_shape
        grey = (images[chosen] / (_WHITE / 2) - 1).astype(np.float32).reshape(-1, 1, _SIDE, _SIDE)
        repeat = side // _SIDE
        enlarged = grey.repeat(repeat, axis=2).repeat(repeat, axis=3).repeat(channels, axis=1)
        return ArrayDataset(enlarged, labels[chosen].astype(np.int64))
