"""Readings of the training loss: noted at a step, taken from the device once the step has been marked."""

import time

import torch

from xlaexp.callbacks import Callback
from xlaexp.train.parts import Parts
from xlaexp.xla import collectives


class Readings:
    """Reads the device at log steps only, and never before the step's mark.

    Args:
        parts: what is trained.
        every: steps between two readings.
        callback: gets the numbers.
    """

    def __init__(self, parts: Parts, every: int, callback: Callback) -> None:
        self._parts = parts
        self._every = every
        self._callback = callback
        self._noted: list[tuple[int, int, float, torch.Tensor]] = []
        self._last_step = 0
        self._clock = time.perf_counter()

    def note(self, step: int) -> None:
        """After a step was recorded: takes the losses since the last reading, if it is time or the last step."""
        if step % self._every and step != self._parts.total_steps:
            return
        rate = float(self._parts.optimizer.param_groups[0]["lr"])
        self._noted.append((step, step - self._last_step, rate, self._parts.gradients.take()))
        self._last_step = step

    def read(self, step: int) -> None:
        """Reads what was noted, as far as it has been executed: every step up to ``step``.

        With several replicas, all of them have to call it at the same moment: the loss is their mean.
        """
        while self._noted and self._noted[0][0] <= step:
            noted, steps, rate, losses = self._noted.pop(0)
            # Read on the host in double precision; the one transfer of this log step.
            loss = collectives.all_reduce_sum(losses).item() / (steps * self._parts.replicas)
            now = time.perf_counter()
            samples = steps * self._parts.train_samples
            scalars = {
                "train/loss": loss,
                "train/lr": rate,
                "train/samples_per_s": samples / max(now - self._clock, 1e-9),
            }
            self._clock = now
            self._callback.log(noted, scalars)

    def pause(self) -> float:
        """Stops the clock of ``samples_per_s`` for an evaluation; give the result to :meth:`resume`."""
        return time.perf_counter()

    def resume(self, paused: float) -> None:
        """Lets the clock go on."""
        self._clock += time.perf_counter() - paused
