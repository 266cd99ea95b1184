"""Readings of the training loss: noted at a step, taken from the device once the step has been marked."""

import logging
import math
import time
from dataclasses import dataclass
from typing import Literal

import torch

from xlaexp.callbacks import Callback
from xlaexp.train.parts import Parts
from xlaexp.xla import collectives

log = logging.getLogger("xlaexp")


class NonFiniteError(ArithmeticError):
    """The training loss is no finite number any more."""


@dataclass(frozen=True)
class _Noted:
    """What is read as soon as it has been executed."""

    batch: int
    """How many batches have to be executed for it."""
    step: int
    steps: int
    """Steps since the last one."""
    rates: list[float]
    losses: torch.Tensor
    norm: torch.Tensor | None


class Readings:
    """Reads the device at log steps only, and never before the mark.

    Args:
        parts: what is trained.
        every: steps between two readings.
        callback: gets the numbers.
        on_nonfinite: what a loss that is NaN or infinite leads to.

    Attributes:
        last_step: the last step that was noted.
        last: what was read last, as far as it is the same on every replica.
    """

    def __init__(
        self, parts: Parts, every: int, callback: Callback, on_nonfinite: Literal["raise", "warn"] = "raise"
    ) -> None:
        self._parts = parts
        self._every = every
        self._callback = callback
        self._on_nonfinite = on_nonfinite
        self._noted: list[_Noted] = []
        self.last_step = 0
        self.last: dict[str, float] = {}
        self._clock = time.perf_counter()

    def note(self, step: int, batch: int) -> None:
        """After a step was recorded: takes the losses since the last reading, if it is time or the last step.

        Args:
            step: optimizer steps so far.
            batch: batches so far.
        """
        if step % self._every and step != self._parts.total_steps:
            return
        rates = [float(group["lr"]) for group in self._parts.optimizer.param_groups]
        losses, norm = self._parts.gradients.take(), self._parts.clipping.norm
        self._noted.append(_Noted(batch, step, step - self.last_step, rates, losses, norm))
        self.last_step = step

    def read(self, batches: int) -> None:
        """Reads what was noted, as far as it has been executed.

        With several replicas, all of them have to call it at the same moment: the loss is their mean.

        Args:
            batches: how many have been executed.

        Raises:
            NonFiniteError: the loss is no number, and nobody has said to go on.
        """
        while self._noted and self._noted[0].batch <= batches:
            noted = self._noted.pop(0)
            # Read on the host in double precision; the one transfer of this log step.
            loss = collectives.all_reduce_sum(noted.losses).item() / (noted.steps * self._parts.replicas)
            now = time.perf_counter()
            samples = noted.steps * self._parts.train_samples
            scalars = {
                "train/loss": loss,
                "train/lr": noted.rates[0],
                **{f"train/lr_{group}": rate for group, rate in enumerate(noted.rates[1:], 1)},
                "train/samples_per_s": samples / max(now - self._clock, 1e-9),
            }
            if noted.norm is not None:
                scalars["train/grad_norm"] = noted.norm.item()
            self._clock = now
            self.last = {name: scalars[name] for name in ("train/loss", "train/grad_norm") if name in scalars}
            self._callback.log(noted.step, scalars)
            self.check(loss, noted.step, noted.steps)

    def check(self, loss: float, step: int, steps: int) -> None:
        """Raises or warns where a loss is not finite.

        Args:
            loss: a mean over steps.
            step: the last of them.
            steps: how many they are.
        """
        if math.isfinite(loss):
            return
        where = f"at step {step}" if steps == 1 else f"in one of the steps {step - steps + 1} to {step}"
        text = f"the training loss became {loss} {where}"
        if self._on_nonfinite == "raise":
            raise NonFiniteError(
                f"{text}; lower optimizer.lr, limit the gradients with train.clip_norm=1, or go on all the same with "
                "train.on_nonfinite=warn. The last checkpoint was written before that"
            )
        log.warning("%s (train.on_nonfinite=warn)", text)

    def pause(self) -> float:
        """Stops the clock of ``samples_per_s`` for an evaluation; give the result to :meth:`resume`."""
        return time.perf_counter()

    def resume(self, paused: float) -> None:
        """Lets the clock go on."""
        self._clock += time.perf_counter() - paused
