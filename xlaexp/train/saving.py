"""When a training saves its state, and when it stops because it was asked to."""

from collections.abc import Callable, Mapping
from typing import Any

from xlaexp.callbacks import Callback
from xlaexp.checkpoint import Store
from xlaexp.config.schema import Checkpoint
from xlaexp.result import improves
from xlaexp.stopping import StoppedError
from xlaexp.train.parts import Parts
from xlaexp.train.readings import Readings
from xlaexp.train.state import Progress, capture
from xlaexp.xla import collectives, runtime


class Saving:
    """Saves on all replicas in the same steps, because what is each one's own has to be gathered.

    Args:
        parts: what is trained.
        plan: how often.
        readings: of the loss; a state is saved only if it is a number so far.
        callback: its state is saved as well.
        store: keeps the states; None on all replicas but the first.
        extra: what else describes the run: config, versions.
    """

    def __init__(
        self,
        parts: Parts,
        plan: Checkpoint,
        readings: Readings,
        callback: Callback,
        store: Store | None,
        extra: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        self._parts, self._plan, self._readings, self._callback = parts, plan, readings, callback
        self._store, self._extra = store, extra
        assert plan.metric is not None  # filled in by the config's check
        assert plan.mode is not None
        self._metric, self._mode = plan.metric, plan.mode
        self.best: float | None = None

    def after_step(self, progress: Progress, batches: int, last: bool) -> None:
        """After each step.

        Args:
            progress: where the training stands now.
            batches: that have been handed out.
            last: whether the epoch ends here; then it is saved after its evaluation.

        Raises:
            StoppedError: the run was asked to stop, and its state is on disk.
        """
        signum = collectives.stop_requested(self._parts.device, may_ask=self._readings.last_step == progress.step)
        due = self._plan.unit == "step" and progress.step % self._plan.every == 0 and not last
        if signum is None and not due:
            return
        self._parts.strategy.drain()
        self._readings.read(batches)
        self._save(progress, best=due and self._is_best(self._readings.last))
        if signum is not None:
            if self._store:
                self._store.finish()
            raise StoppedError(signum, progress.step)

    def after_epoch(self, progress: Progress, evaluated: Mapping[str, float] | None, over: bool) -> None:
        """After each epoch and its evaluation, if there was one.

        Args:
            progress: where the training stands now.
            evaluated: what the evaluation gave.
            over: whether the training ends here.
        """
        number = progress.epoch if self._plan.unit == "epoch" else progress.step
        best = self._is_best({**self._readings.last, **(evaluated or {})})
        if over or best or number % self._plan.every == 0:
            self._save(progress, best)

    def _is_best(self, values: Mapping[str, float]) -> bool:
        """Whether they have the metric, and nothing was better; the same on every replica."""
        value = values.get(self._metric)
        if value is None or not improves(value, self.best, self._mode):
            return False
        self.best = value
        return True

    def _save(self, progress: Progress, best: bool) -> None:
        if self._store:
            self._store.finish()  # before the next copy of the state is made
        content = capture(self._parts, progress, self._readings)
        since = progress.step - self._readings.last_step
        if since and content:
            self._readings.check(sum(content["losses"]) / (since * len(content["losses"])), progress.step, since)
        if self._store is None:
            return
        self._callback.checkpoint(progress.step)
        content |= {"callbacks": runtime.download(self._callback.state()), "best_value": self.best, **self._extra()}
        self._store.save(content, progress.step, best)
