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

from torch.optim import Optimizer

from xlaexp.xla import collectives, runtime
from xlaexp.xla.feed import Feed, Sized


class Strategy(ABC):
    """Takes training steps, and marks each exactly once.

    Args:
        gradients: records forward and backward of a batch.
        optimizer: built from parameters on the device.
        feed: moves batches to the device, and marks steps or not.
    """

    def __init__(self, gradients: Callable[[Any], None], optimizer: Optimizer, feed: Feed) -> None:
        self._gradients = gradients
        self._optimizer = optimizer
        self._feed = feed

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
        """At a batch: the steps before it that have not been marked. Nothing they compute may be read."""

    @abstractmethod
    def drain(self) -> None:
        """Marks what is pending: before a checkpoint, an evaluation and the end."""


class _MarkingStrategy(Strategy):
    """Marks every step itself, at its end: nothing is ever pending."""

    def mark(self) -> None:
        """See :class:`Strategy`."""
        runtime.sync()

    def pending(self) -> int:
        """See :class:`Strategy`."""
        return 0

    def drain(self) -> None:
        """See :class:`Strategy`."""


@final
class SyncStrategy(_MarkingStrategy):
    """One replica, plain loader."""

    def step(self, batch: Any) -> None:
        """See :class:`Strategy`."""
        self._gradients(batch)
        self._optimizer.step()
        runtime.sync()


@final
class BarrierStrategy(_MarkingStrategy):
    """Several replicas, plain loader."""

    def step(self, batch: Any) -> None:
        """See :class:`Strategy`."""
        self._gradients(batch)
        collectives.optimizer_step(self._optimizer, barrier=True)


@final
class LoaderStrategy(Strategy):
    """Any number of replicas, MpDeviceLoader: it marks the step when the next batch is asked for."""

    def step(self, batch: Any) -> None:
        """See :class:`Strategy`; executed when the loader marks it."""
        self._gradients(batch)
        collectives.optimizer_step(self._optimizer, barrier=False)

    def mark(self) -> None:
        """See :class:`Strategy`; the loader does it."""

    def pending(self) -> int:
        """See :class:`Strategy`; the batch at hand is not a step yet."""
        return max(0, self._feed.unmarked - 1)

    def drain(self) -> None:
        """See :class:`Strategy`; leaving the loader early leaves its last steps unmarked."""
        if self._feed.unmarked:
            runtime.sync()
            self._feed.unmarked = 0


STRATEGIES: Mapping[str, type[Strategy]] = {
    "sync": SyncStrategy,
    "barrier": BarrierStrategy,
    "loader": LoaderStrategy,
}
