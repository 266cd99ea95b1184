"""The moments of a run at which others may look on."""

from collections.abc import Mapping
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
    step: int = 0
    """Optimizer steps that were taken before, where it goes on from a checkpoint."""


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

    def checkpoint(self, step: int) -> None:
        """Before a checkpoint is written: what was logged so far should be on disk."""

    def state(self) -> Mapping[str, Any]:
        """Tensors and plain data that a checkpoint keeps for it."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Before ``start``, where a run goes on from a checkpoint: what :meth:`state` returned then."""

    def end(self, result: Result | None) -> None:
        """At the end; None where the run has failed or was interrupted."""


class Callbacks(Callback):
    """Several as one; ``end`` reaches all, whatever one of them raises.

    Args:
        callbacks: by the names under which a checkpoint keeps their states, in the order in which they are called.
    """

    def __init__(self, callbacks: Mapping[str, Callback]) -> None:
        self._named = dict(callbacks)
        self._all = tuple(self._named.values())
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

    def checkpoint(self, step: int) -> None:
        """See :class:`Callback`."""
        for callback in self._all:
            callback.checkpoint(step)

    def state(self) -> Mapping[str, Any]:
        """See :class:`Callback`."""
        return {name: state for name, callback in self._named.items() if (state := callback.state())}

    def restore(self, state: Mapping[str, Any]) -> None:
        """See :class:`Callback`; of one that is new nothing was kept."""
        for name, callback in self._named.items():
            if name in state:
                callback.restore(state[name])

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
