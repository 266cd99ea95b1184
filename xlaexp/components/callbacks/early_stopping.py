"""Ends a training that does not get better."""

import logging
from collections.abc import Mapping
from typing import Any, Literal

from xlaexp.callbacks import Callback, Scalars
from xlaexp.registry import CALLBACKS

log = logging.getLogger("xlaexp")


@CALLBACKS.register("early_stopping")
class EarlyStopping(Callback):
    """Ends the training, on all replicas, when a metric has not improved for ``patience`` evaluations (Prechelt 1998).

    Args:
        metric: of an evaluation.
        mode: whether more or less of it is better.
        patience: evaluations without an improvement.
        min_delta: by how much it has to be better to count.

    Raises:
        ValueError: patience is less than 1, or min_delta less than 0.
    """

    def __init__(
        self,
        metric: str = "val/loss",
        mode: Literal["min", "max"] = "min",
        patience: int = 3,
        min_delta: float = 0.0,
    ) -> None:
        if patience < 1 or min_delta < 0:
            raise ValueError(f"callbacks.early_stopping: patience={patience} is less than 1, or min_delta less than 0")
        self._metric, self._sign = metric, 1 if mode == "max" else -1
        self._patience, self._min_delta = patience, min_delta
        self._best: float | None = None
        self._bad = 0

    @property
    def stops(self) -> bool:
        """Whether it has waited long enough."""
        return self._bad >= self._patience

    def evaluate(self, step: int, scalars: Scalars) -> None:
        """Counts evaluations without an improvement; a NaN is none."""
        if self._metric not in scalars:
            raise KeyError(f"callbacks.early_stopping.metric: no {self._metric!r} among {', '.join(sorted(scalars))}")
        value = self._sign * scalars[self._metric]
        if self._best is None or value > self._best + self._min_delta or self._best != self._best:
            self._best, self._bad = value, 0
            return
        self._bad += 1
        if self.stops:
            log.info("stops early: %s has not improved in %d evaluations", self._metric, self._bad)

    def state(self) -> Mapping[str, Any]:
        """See :class:`Callback`."""
        return {"best": self._best, "bad": self._bad}

    def restore(self, state: Mapping[str, Any]) -> None:
        """See :class:`Callback`."""
        self._best, self._bad = state["best"], state["bad"]
