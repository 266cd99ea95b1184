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

    @abstractmethod
    def batches(self, loader: Sized) -> Generator[Any, None, None]:
        """The loader's batches on the device. Close it when leaving early.

        Raises:
            Exception: what the data set, the collate function or a worker raised.
        """


@final
class DirectFeed(Feed):
    """Moves each batch when it is asked for; never marks a step.

    Args:
        device: where batches go.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def batches(self, loader: Sized) -> Generator[Any, None, None]:
        """See :class:`Feed`."""
        for batch in loader:
            yield runtime.upload(batch, self._device)


@final
class ParallelFeed(Feed):
    """torch_xla's MpDeviceLoader, with its traps closed.

    What the loader raises reaches the caller, batches are as the loader made them and in its order
    (:class:`xlaexp.xla.batches.Packed`), and leaving early leaks no thread.

    Args:
        device: where batches go.
        options: the ParallelLoader's own options, checked by the config.
    """

    def __init__(self, device: torch.device, options: Mapping[str, int]) -> None:
        self._device = device
        self._options = dict(options)

    def batches(self, loader: Sized) -> Generator[Any, None, None]:
        """See :class:`Feed`; marks a step before every ``batches_per_execution``-th batch and at the end."""
        source = Packed(loader)
        parallel = MpDeviceLoader(source, self._device, **self._options)
        iterator = iter(parallel)
        self.unmarked = 0
        try:
            for number, tensors in iterator:
                if iterator._batches_yielded == 0:  # it has marked a step just now (torch_xla 2.9.0)
                    self.unmarked = 0
                for batch in source.ready(number, tensors):
                    self.unmarked += 1
                    yield batch
            self.unmarked = 0
        finally:
            parallel._parallel_loader.close()  # the only way to end its threads; MpDeviceLoader has no close
        if source.error is not None:
            raise source.error
