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
from xlaexp.xla.batches import Sized
from xlaexp.xla.feed import Feed


class Strategy(ABC):
    """Takes training steps, and marks each batch exactly once.

    Args:
        gradients: records forward and backward of a batch: (batch, whether it is the first of its optimizer step,
            its part of the step's samples).
        optimizer: built from parameters on the device.
        feed: moves batches to the device, and marks steps or not.
    """

    def __init__(self, gradients: Callable[[Any, bool, float], None], optimizer: Optimizer, feed: Feed) -> None:
        self._gradients = gradients
        self._optimizer = optimizer
        self._feed = feed

    def batches(self, loader: Sized) -> Generator[Any, None, None]:
        """A loader's batches on the device. Close it, then drain, when leaving early."""
        return self._feed.batches(loader)

    @abstractmethod
    def step(self, batch: Any, first: bool = True, weight: float = 1.0) -> None:
        """Records forward, backward, reduction and optimizer step.

        Args:
            batch: on the device; the last one of its optimizer step.
            first: whether it is the first one as well.
            weight: its part of the samples of the step.
        """

    def accumulate(self, batch: Any, first: bool, weight: float) -> None:
        """Records forward and backward of a batch whose optimizer step comes with a later one; see :meth:`step`."""
        self._gradients(batch, first, weight)
        self.mark()

    @abstractmethod
    def mark(self) -> None:
        """Ends what was recorded for a batch without an optimizer step."""

    @abstractmethod
    def pending(self) -> int:
        """At a batch: those before it that have not been marked. Nothing that they compute may be read."""

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

    def step(self, batch: Any, first: bool = True, weight: float = 1.0) -> None:
        """See :class:`Strategy`."""
        self._gradients(batch, first, weight)
        self._optimizer.step()
        runtime.sync()


@final
class BarrierStrategy(_MarkingStrategy):
    """Several replicas, plain loader."""

    def step(self, batch: Any, first: bool = True, weight: float = 1.0) -> None:
        """See :class:`Strategy`."""
        self._gradients(batch, first, weight)
        collectives.optimizer_step(self._optimizer, barrier=True)


@final
class LoaderStrategy(Strategy):
    """Any number of replicas, MpDeviceLoader: it marks the step when the next batch is asked for."""

    def step(self, batch: Any, first: bool = True, weight: float = 1.0) -> None:
        """See :class:`Strategy`; executed when the loader marks it."""
        self._gradients(batch, first, weight)
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
