"""The moments of a run at which others may look on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xlaexp.result import Result

Scalars = Mapping[str, float]


@dataclass(frozen=True)
class Run:
    """What is known when a run starts."""

    config: Mapping[str, Any]
    """The resolved config as plain data."""
    total_steps: int
    """Optimizer steps that the run will take."""
    steps_per_epoch: int
    """Optimizer steps of one epoch."""
    metric: str
    """Name of the objective."""


class Callback:
    """Looks on; overrides what it needs. Replica 0 has all of them.

    None may read the device, except in ``evaluate``: the values are given as numbers.
    """

    @property
    def stops(self) -> bool:
        """Whether the training is to end after the last evaluation, on all replicas; asked where it can be."""
        return False

    def start(self, run: Run) -> None:
        """Before the first step."""

    def step(self, step: int) -> None:
        """After each step has been recorded, before it is known to have been executed. Has to be fast."""

    def log(self, step: int, scalars: Scalars) -> None:
        """After each reading of the training loss."""

    def evaluate(self, step: int, scalars: Scalars) -> None:
        """After each evaluation; the weights are those after ``step`` steps."""

    def end(self, result: Result | None) -> None:
        """At the end; None where the run has failed or was interrupted."""


class Callbacks(Callback):
    """Several as one; ``end`` reaches all, whatever one of them raises.

    Args:
        callbacks: in the order in which they are called.
    """

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self._all = tuple(callbacks)
        # Most callbacks have nothing to do at a step, which is the one moment that has to be fast.
        self._steppers = tuple(c for c in self._all if type(c).step is not Callback.step)

    @property
    def stops(self) -> bool:
        """See :class:`Callback`."""
        return any(callback.stops for callback in self._all)

    def start(self, run: Run) -> None:
        """See :class:`Callback`."""
        for callback in self._all:
            callback.start(run)

    def step(self, step: int) -> None:
        """See :class:`Callback`."""
        for callback in self._steppers:
            callback.step(step)

    def log(self, step: int, scalars: Scalars) -> None:
        """See :class:`Callback`."""
        for callback in self._all:
            callback.log(step, scalars)

    def evaluate(self, step: int, scalars: Scalars) -> None:
        """See :class:`Callback`."""
        for callback in self._all:
            callback.evaluate(step, scalars)

    def end(self, result: Result | None) -> None:
        """See :class:`Callback`."""
        errors = []
        for callback in self._all:
            try:
                callback.end(result)
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]
