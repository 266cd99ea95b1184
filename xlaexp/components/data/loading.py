"""Loaders: which replica sees which samples, in which order, in batches of which shape."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Sampler, default_collate

Batch = tuple[Any, ...]


class Batches(Dataset[Batch]):
    """Serves whole batches: an index is a list of sample indices.

    Args:
        samples: the data set; its ``batch(indices)`` is used where it has one.
    """

    def __init__(self, samples: Any) -> None:
        self.samples = samples

    def __getitem__(self, indices: Sequence[int]) -> Batch:
        if hasattr(self.samples, "batch"):
            found: Batch = self.samples.batch(indices)
            return found
        return tuple(default_collate([self.samples[index] for index in indices]))


class MaskedBatches(Batches):
    """Batches with a mask: 1 for a sample, 0 for padding (index None)."""

    def __getitem__(self, indices: Sequence[int | None]) -> Batch:
        batch = super().__getitem__([0 if index is None else index for index in indices])
        return *batch, torch.tensor([index is not None for index in indices], dtype=torch.float32)


class TrainBatches(Sampler[list[int]]):
    """Batches of this replica's share of every epoch, in an order that epoch and seed determine.

    Args:
        samples: size of the data set.
        replicas: number of replicas.
        ordinal: this one.
        seed: seed of the run.
        batch_size: samples a batch.
        drop_last: leave out what does not fill a batch on every replica.
        limit: use the first batches of epoch 0 only, in that order, in every epoch; 0: all.

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
        # Its data set is only ever asked for its length.
        self._shares: DistributedSampler[int] = DistributedSampler(
            range(samples),  # type: ignore[arg-type]
            num_replicas=replicas,
            rank=ordinal,
            seed=seed,
            drop_last=drop_last,
        )
        self._batch_size = batch_size
        self._limit = limit
        share = samples // replicas if drop_last else math.ceil(samples / replicas)
        whole = share // batch_size if drop_last else math.ceil(share / batch_size)
        self._length = min(whole, limit) if limit else whole
        if not self._length:
            raise ValueError(
                f"not one training batch: n={samples} samples, batch size bs={batch_size}, ws={replicas} replicas; "
                "lower loader.batch_size or set loader.drop_last=false"
            )

    def set_epoch(self, epoch: int) -> None:
        """Chooses the order of the next iteration."""
        self._shares.set_epoch(0 if self._limit else epoch)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[list[int]]:
        order = list(self._shares)
        for start in range(0, self._length * self._batch_size, self._batch_size):
            yield order[start : start + self._batch_size]


class EvalBatches(Sampler[list[int | None]]):
    """Every sample once over all replicas, in batches of one shape; None pads them.

    Args:
        samples: the indices to evaluate.
        replicas: number of replicas.
        ordinal: this one.
        batch_size: samples a batch.
    """

    def __init__(self, samples: Sequence[int], replicas: int, ordinal: int, batch_size: int) -> None:
        self._length = math.ceil(len(samples) / (replicas * batch_size))
        self._batch_size = batch_size
        share: list[int | None] = list(samples[ordinal::replicas])
        self._share = share + [None] * (self._length * batch_size - len(share))

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[list[int | None]]:
        for start in range(0, len(self._share), self._batch_size):
            yield self._share[start : start + self._batch_size]


def loader(batches: Batches, sampler: Sampler[Any], num_workers: int, seed: int) -> DataLoader[Batch]:
    """A DataLoader over batches.

    Args:
        batches: what to load.
        sampler: yields one list of indices a batch.
        num_workers: worker processes; forked from a server, because forking a process with replica threads in
            it can deadlock.
        seed: seeds the workers.
    """
    return DataLoader(
        batches,
        batch_size=None,
        sampler=sampler,
        num_workers=num_workers,
        multiprocessing_context="forkserver" if num_workers else None,
        persistent_workers=num_workers > 0,
        generator=torch.Generator().manual_seed(seed),
    )
