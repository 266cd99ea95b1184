"""Loaders: batches of samples, each drawn from random streams of its own."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, Sampler, default_collate

from xlaexp import streams
from xlaexp.components.data.sampling import Draw

Batch = tuple[Any, ...]


class SampleError(Exception):
    """What a data set or the collation raised, with the samples at which it did.

    Args:
        message: of the original exception; or what a DataLoader makes of that of a worker, traceback included.
    """

    def __init__(self, message: str) -> None:
        name = f"{type(self).__name__}: "
        if name in message:  # from a worker: the traceback, which ends with the message
            self.add_note(message)
            message = message.rpartition(name)[2].strip()
        super().__init__(message)


class Batches(Dataset[Batch]):
    """Serves whole batches.

    Args:
        samples: the data set. Its ``batch(indices)`` is used where it has one; ``draws_nothing = True`` says that it
            uses no random numbers, so that they need not be seeded for every batch.
        collate: makes a batch of samples, in place of ``batch(indices)``; None: as torch does.
    """

    def __init__(self, samples: Any, collate: Callable[[Any], Any] | None = None) -> None:
        self.samples = samples
        self._whole = collate is None and hasattr(samples, "batch")
        self._collate = collate or default_collate

    def __getitem__(self, draw: Draw) -> Batch:
        indices = [0 if index is None else index for index in draw.indices]
        if getattr(self.samples, "draws_nothing", False):
            return self._load(indices)
        with streams.seeded(draw.seed):
            return self._load(indices)

    def _load(self, indices: list[int]) -> Batch:
        if self._whole:
            with _naming(f"samples {_listed(indices)}"):
                found: Batch = self.samples.batch(indices)
                return found
        samples = []
        for index in indices:
            with _naming(f"sample {index}"):
                samples.append(self.samples[index])
        with _naming(f"the collation of samples {_listed(indices)}"):
            return tuple(self._collate(samples))


class MaskedBatches(Batches):
    """Batches with a mask: 1 for a sample, 0 for padding (index None)."""

    def __getitem__(self, draw: Draw) -> Batch:
        mask = torch.tensor([index is not None for index in draw.indices], dtype=torch.float32)
        return *super().__getitem__(draw), mask


@contextmanager
def _naming(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise SampleError(f"{type(error).__name__}: {error} (in {what})") from error


def _listed(indices: list[int]) -> str:
    return ", ".join(map(str, indices[:8])) + (", ..." if len(indices) > 8 else "")


class WorkerError(Exception):
    """A worker process of a DataLoader has died."""


class _WithWorkers(DataLoader[Batch]):
    def __iter__(self) -> Iterator[Batch]:  # type: ignore[override]  # an iterator is all that anybody needs
        try:
            yield from super().__iter__()
        except (ConnectionError, EOFError, FileNotFoundError) as error:
            # What a data set raises in a worker is a SampleError: this comes from the way between the processes.
            raise WorkerError(
                f"a DataLoader worker has died: it was killed (memory?) or it exited ({type(error).__name__}: {error})"
            ) from error


def loader(batches: Batches, sampler: Sampler[Any], num_workers: int) -> DataLoader[Batch]:
    """A DataLoader over batches.

    Args:
        batches: what to load.
        sampler: yields a :class:`Draw` a batch.
        num_workers: worker processes; forked from a server, because forking a process with replica threads in
            it can deadlock.
    """
    kind = _WithWorkers if num_workers else DataLoader[Batch]
    return kind(
        batches,
        batch_size=None,
        sampler=sampler,
        num_workers=num_workers,
        multiprocessing_context="forkserver" if num_workers else None,
        persistent_workers=num_workers > 0,
        # Its own one: it draws a number for each iteration, and the process's generator is not its to use.
        generator=torch.Generator(),
    )
