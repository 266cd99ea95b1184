"""Who marks the step. A strategy owns the step boundary, and nothing else marks one in training.

=========== ================= ======== =======================================================
device      loader            strategy the step
=========== ================= ======== =======================================================
single      plain             sync     ``optimizer.step()``, ``torch_xla.sync()``
multi       plain             barrier  ``xm.optimizer_step(optimizer, barrier=True)``
any         mp_device_loader  loader   ``xm.optimizer_step(optimizer)``; the loader marks it
=========== ================= ======== =======================================================
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping
from typing import Any, final

import torch
from torch.optim import Optimizer

from xlaexp.xla import collectives, runtime
from xlaexp.xla.feed import DirectFeed, Feed, ParallelFeed, Sized


class Strategy(ABC):
    """Takes training steps, and marks each exactly once.

    Args:
        gradients: records forward and backward of a batch.
        optimizer: built from parameters on the device.
        feed: moves batches to the device.
    """

    def __init__(self, gradients: Callable[[Any], None], optimizer: Optimizer, feed: Feed) -> None:
        self._gradients = gradients
        self._optimizer = optimizer
        self._feed = feed

    @classmethod
    @abstractmethod
    def create(
        cls,
        gradients: Callable[[Any], None],
        optimizer: Optimizer,
        device: torch.device,
        options: Mapping[str, int],
    ) -> "Strategy":
        """The strategy with the feed it needs; ``options`` are the ParallelLoader's."""

    def batches(self, loader: Sized) -> Generator[Any, None, None]:
        """A loader's batches on the device. Close it, then drain, when leaving early."""
        return self._feed.batches(loader)

    @abstractmethod
    def step(self, batch: Any) -> None:
        """Records forward, backward, reduction and optimizer step of a batch."""

    @abstractmethod
    def mark(self) -> None:
        """Ends what was recorded for a batch that is no training step (an evaluation's)."""

    @abstractmethod
    def pending(self) -> int:
        """Steps that have been recorded but not yet marked. Nothing they compute may be read."""

    @abstractmethod
    def drain(self) -> None:
        """Marks what is pending: before a checkpoint, an evaluation and the end."""


@final
class SyncStrategy(Strategy):
    """One replica, plain loader."""

    @classmethod
    def create(
        cls,
        gradients: Callable[[Any], None],
        optimizer: Optimizer,
        device: torch.device,
        options: Mapping[str, int],
    ) -> "SyncStrategy":
        """See :class:`Strategy`."""
        return cls(gradients, optimizer, DirectFeed(device))

    def step(self, batch: Any) -> None:
        """See :class:`Strategy`; executed at once."""
        self._gradients(batch)
        self._optimizer.step()
        runtime.sync()

    def mark(self) -> None:
        """See :class:`Strategy`."""
        runtime.sync()

    def pending(self) -> int:
        """See :class:`Strategy`; never any."""
        return 0

    def drain(self) -> None:
        """See :class:`Strategy`; nothing is ever pending."""


@final
class BarrierStrategy(Strategy):
    """Several replicas, plain loader."""

    @classmethod
    def create(
        cls,
        gradients: Callable[[Any], None],
        optimizer: Optimizer,
        device: torch.device,
        options: Mapping[str, int],
    ) -> "BarrierStrategy":
        """See :class:`Strategy`."""
        return cls(gradients, optimizer, DirectFeed(device))

    def step(self, batch: Any) -> None:
        """See :class:`Strategy`; executed at once."""
        self._gradients(batch)
        collectives.optimizer_step(self._optimizer, barrier=True)

    def mark(self) -> None:
        """See :class:`Strategy`."""
        runtime.sync()

    def pending(self) -> int:
        """See :class:`Strategy`; never any."""
        return 0

    def drain(self) -> None:
        """See :class:`Strategy`; nothing is ever pending."""


@final
class LoaderStrategy(Strategy):
    """Any number of replicas, MpDeviceLoader: it marks the step when the next batch is asked for."""

    _feed: ParallelFeed

    @classmethod
    def create(
        cls,
        gradients: Callable[[Any], None],
        optimizer: Optimizer,
        device: torch.device,
        options: Mapping[str, int],
    ) -> "LoaderStrategy":
        """See :class:`Strategy`."""
        return cls(gradients, optimizer, ParallelFeed(device, options))

    def step(self, batch: Any) -> None:
        """See :class:`Strategy`; executed when the loader marks it."""
        self._gradients(batch)
        collectives.optimizer_step(self._optimizer, barrier=False)

    def mark(self) -> None:
        """See :class:`Strategy`; the loader does it."""

    def pending(self) -> int:
        """See :class:`Strategy`; at a batch: the steps before it that the loader has not marked."""
        return max(0, self._feed.unmarked - 1)

    def drain(self) -> None:
        """See :class:`Strategy`; leaving the loader early leaves its last steps unmarked."""
        if self._feed.unmarked:
            runtime.sync()
            self._feed.marked()


STRATEGIES: Mapping[str, type[Strategy]] = {
    "sync": SyncStrategy,
    "barrier": BarrierStrategy,
    "loader": LoaderStrategy,
}
