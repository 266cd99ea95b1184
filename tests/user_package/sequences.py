"""Sequences of different lengths."""

from typing import cast

import numpy as np
import torch
from torch import nn

from xlaexp.components.data.spec import Spec

CLASSES = 5


class Samples(torch.utils.data.Dataset[tuple[np.ndarray, torch.Tensor]]):
    """Tokens from 1 on, whose labels are the tokens' remainders, or the remainder of their sum."""

    def __init__(self, samples: int, longest: int, per_token: bool) -> None:
        self._samples, self._longest, self._per_token = samples, longest, per_token

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int) -> tuple[np.ndarray, torch.Tensor]:
        tokens = np.random.default_rng(index).integers(1, 20, size=1 + index % self._longest)
        return tokens, torch.as_tensor(tokens if self._per_token else tokens.sum()) % CLASSES


class Sequences:
    """Sequences of 1 to ``longest`` tokens."""

    def __init__(self, longest: int = 8, per_token: bool = False, samples: int = 64) -> None:
        self.spec = Spec((longest,), CLASSES)
        self._arguments = longest, per_token
        self._samples = samples

    def train(self) -> Samples:
        return Samples(self._samples, *self._arguments)

    def val(self) -> Samples:
        return Samples(24, *self._arguments)


class Sums(nn.Module):
    """Classifies a sequence by the sum of its embedded tokens, or each token by itself; padding adds nothing."""

    def __init__(self, num_classes: int, per_token: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 16, padding_idx=0)
        self.head = nn.Linear(16, num_classes)
        self._per_token = per_token

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        embedded = self.embedding(tokens)
        if self._per_token:
            return cast(torch.Tensor, self.head(embedded).transpose(1, 2))
        return cast(torch.Tensor, self.head(embedded.sum(1)))
