"""Which replica sees which samples, in which order. All of it follows from seed, epoch and position."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch.utils.data import Sampler


class Draw(NamedTuple):
    """What a loader is asked for: one batch."""

    indices: Sequence[int | None]
    """Of its samples; None is padding."""
    seed: int
    """Of the random streams that its samples may draw from: the batch's own, so that it does not matter what was
    loaded before it, or ahead of it, and by whom."""


class TrainBatches(Sampler[Draw]):
    """Batches of this replica's share of an epoch, in an order that epoch and seed determine.

    A step of all replicas takes the same samples however many replicas there are, and the order is the one of
    :class:`torch.utils.data.DistributedSampler`.

    Args:
        samples: size of the data set.
        replicas: number of replicas.
        ordinal: this one.
        seed: seed of the run.
        batch_size: samples a batch.
        drop_last: leave out what does not fill a batch on every replica.
        limit: use the first batches of epoch 0 only, in that order, in every epoch; 0: all.

    Attributes:
        per_epoch: batches of a whole epoch.

    Raises:
        ValueError: an epoch would have no batch.
    """

    def __init__(
        self,
        samples: int,
        replicas: int,
        ordinal: int,
        seed: int,
        batch_size: int,
        drop_last: bool,
        limit: int = 0,
    ) -> None:
        self._samples, self._replicas, self._ordinal = samples, replicas, ordinal
        self._seed, self._batch_size, self._drop_last, self._limit = seed, batch_size, drop_last, limit
        self._epoch = self._taken = 0
        self.per_epoch = self._batches(0)
        if not self.per_epoch:
            raise ValueError(
                f"not one training batch: n={samples} samples, batch size bs={batch_size}, ws={replicas} replicas; "
                "lower loader.batch_size or set loader.drop_last=false"
            )

    def start(self, epoch: int, taken: int = 0) -> None:
        """Chooses what the next iteration yields.

        Args:
            epoch: determines the order.
            taken: samples of the epoch that all replicas together have had already.
        """
        self._epoch, self._taken = 0 if self._limit else epoch, taken

    def sizes(self) -> list[int]:
        """Samples of each batch of the next iteration."""
        share = self._share(self._taken)
        return [min(self._batch_size, share - self._batch_size * number) for number in range(len(self))]

    def __len__(self) -> int:
        return self._batches(self._taken)

    def __iter__(self) -> Iterator[Draw]:
        generator = torch.Generator().manual_seed(self._seed + self._epoch)
        order = torch.randperm(self._samples, generator=generator).tolist()
        rest = order[self._taken :]
        if not self._drop_last and rest:
            missing = -len(rest) % self._replicas
            rest += (order * math.ceil(missing / len(order)))[:missing]
        own = rest[self._ordinal :: self._replicas]
        for number in range(len(self)):
            place = self._taken + number * self._batch_size * self._replicas
            seed = _seed(self._seed, 0, self._epoch, place, self._ordinal)
            start = number * self._batch_size
            yield Draw(own[start : start + self._batch_size], seed)

    def _share(self, taken: int) -> int:
        """Samples that this replica has left."""
        left = max(0, self._samples - taken)
        return left // self._replicas if self._drop_last else math.ceil(left / self._replicas)

    def _batches(self, taken: int) -> int:
        share = self._share(taken)
        whole = share // self._batch_size if self._drop_last else math.ceil(share / self._batch_size)
        if not self._limit:
            return whole
        return max(0, min(whole, self._limit - taken // (self._batch_size * self._replicas)))


class EvalBatches(Sampler[Draw]):
    """Every sample once over all replicas, in batches of one shape; None pads them.

    Args:
        samples: the indices to evaluate.
        replicas: number of replicas.
        ordinal: this one.
        batch_size: samples a batch.
        seed: seed of the run.
    """

    def __init__(self, samples: Sequence[int], replicas: int, ordinal: int, batch_size: int, seed: int = 0) -> None:
        self._length = math.ceil(len(samples) / (replicas * batch_size))
        self._batch_size, self._ordinal, self._seed = batch_size, ordinal, seed
        share: list[int | None] = list(samples[ordinal::replicas])
        self._share = share + [None] * (self._length * batch_size - len(share))

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Draw]:
        for start in range(0, len(self._share), self._batch_size):
            seed = _seed(self._seed, 1, 0, start, self._ordinal)
            yield Draw(self._share[start : start + self._batch_size], seed)


def _seed(*numbers: int) -> int:
    return int(np.random.SeedSequence(numbers).generate_state(1)[0])
