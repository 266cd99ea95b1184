"""How batches reach the device, and whether that marks the step."""

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping
from typing import Any, final

import torch
from torch_xla.distributed.parallel_loader import MpDeviceLoader

from xlaexp.xla import runtime
from xlaexp.xla.batches import Packed, Sized


class Feed(ABC):
    """Moves batches to a device.

    Attributes:
        unmarked: batches handed out since the feed last marked a step; 0 in a feed that never marks one.
    """

    unmarked = 0

    def __init__(self) -> None:
        self._open: list[Sized] = []

    def batches(self, loader: Sized) -> Generator[Any, None, None]:
        """The loader's batches on the device. Close it when leaving early.

        Raises:
            RuntimeError: an iteration of the same loader has not ended; with worker processes each would get some of
                the other's batches.
            Exception: what the data set, the collate function or a worker raised.
        """
        if any(loader is other for other in self._open):
            raise RuntimeError("this loader is being iterated: a second iteration has to wait for the end of the first")
        self._open.append(loader)
        try:
            yield from self._batches(loader)
        finally:
            self._open = [other for other in self._open if other is not loader]

    @abstractmethod
    def _batches(self, loader: Sized) -> Generator[Any, None, None]:
        """See :meth:`batches`."""


@final
class DirectFeed(Feed):
    """Moves each batch when it is asked for; never marks a step.

    Args:
        device: where batches go.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._device = device

    def _batches(self, loader: Sized) -> Generator[Any, None, None]:
        for batch in loader:
            yield runtime.upload(batch, self._device)


@final
class ParallelFeed(Feed):
    """torch_xla's MpDeviceLoader, with its traps closed.

    What the loader raises reaches the caller, batches are as the loader made them and in its order
    (:class:`xlaexp.xla.batches.Packed`), and leaving early leaks no thread. A step is marked before every
    ``batches_per_execution``-th batch and at the end.

    Args:
        device: where batches go.
        options: the ParallelLoader's own options, checked by the config.
    """

    def __init__(self, device: torch.device, options: Mapping[str, int]) -> None:
        super().__init__()
        self._device = device
        self._options = dict(options)

    def _batches(self, loader: Sized) -> Generator[Any, None, None]:
        source = Packed(loader)
        parallel = MpDeviceLoader(source, self._device, **self._options)
        iterator = iter(parallel)
        self.unmarked = 0
        try:
            for number, tensors in iterator:
                source.put(number, tensors)
                self._fill(source, iterator)
                marked = iterator._batches_yielded == 0  # by the iterator, just now (torch_xla 2.9.0)
                while source.ready():
                    if marked:
                        self.unmarked = 0
                    self.unmarked += 1
                    yield source.take()
                    marked = source.ready() and self._mark(iterator)
            self.unmarked = 0
        finally:
            parallel._parallel_loader.close()  # the only way to end its threads; MpDeviceLoader has no close
            if len(self._open) > 1:  # the batch at hand of the iteration around this one may be computed with now
                self.unmarked = 1
        if source.error is not None:
            raise source.error

    def _fill(self, source: Packed, iterator: Any) -> None:
        """Waits for the batch whose turn it is, past others that have overtaken it.

        The iterator would mark a step for each of them, and replicas have to mark in the same places.
        """
        while not source.ready() and (item := iterator._loader.next_item(self._device)) is not None:
            source.put(*item)

    def _mark(self, iterator: Any) -> bool:
        """Marks a step before a batch that is here already, if the iterator would; returns whether it has."""
        if iterator._sync_batch_count > iterator._batches_yielded:
            iterator._batches_yielded += 1
            return False
        iterator._batches_yielded = 0
        runtime.sync()
        return True
