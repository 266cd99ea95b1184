"""Learning-rate schedules, stepped once an optimizer step. None is 0 in a step that is taken.

All but one_cycle can begin with a linear warm-up, which multiplies what the schedule says by 1/n, 2/n, ... 1.
"""

import math
from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import Field
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, OneCycleLR

from xlaexp.registry import SCHEDULERS

Unit = Literal["step", "epoch"]
Warmup = Annotated[float, Field(ge=0)]
Every = Annotated[int, Field(ge=1)]
Factor = Annotated[float, Field(ge=0)]


@SCHEDULERS.register("constant")
def constant(
    optimizer: Optimizer, total_steps: int, steps_per_epoch: int, warmup: Warmup = 0.0, warmup_unit: Unit = "step"
) -> LRScheduler:
    """The optimizer's learning rate, after the warm-up unchanged.

    Args:
        optimizer: whose learning rates are scaled.
        total_steps: optimizer steps of the run.
        steps_per_epoch: optimizer steps of one epoch.
        warmup: length of the warm-up; in steps below 1 a fraction of total_steps.
        warmup_unit: what warmup counts.
    """
    rising = _warmup_steps(warmup, warmup_unit, total_steps, steps_per_epoch)
    return LambdaLR(optimizer, _risen(lambda step: 1.0, rising))


@SCHEDULERS.register("linear")
def linear(
    optimizer: Optimizer,
    total_steps: int,
    steps_per_epoch: int,
    warmup: Warmup = 0.0,
    warmup_unit: Unit = "step",
    min_factor: Factor = 0.0,
) -> LRScheduler:
    """Warm-up, then in a straight line down; see :func:`cosine` for the arguments."""
    rising = _warmup_steps(warmup, warmup_unit, total_steps, steps_per_epoch)
    return LambdaLR(optimizer, _falling(lambda progress: 1 - progress, rising, total_steps, min_factor))


@SCHEDULERS.register("cosine")
def cosine(
    optimizer: Optimizer,
    total_steps: int,
    steps_per_epoch: int,
    warmup: Warmup = 0.0,
    warmup_unit: Unit = "step",
    min_factor: Factor = 0.0,
) -> LRScheduler:
    """Warm-up, then half a cosine (Loshchilov and Hutter 2016, arXiv:1608.03983, equation 5).

    Args:
        optimizer: whose learning rates are scaled.
        total_steps: optimizer steps of the run; here min_factor is reached, right after the last step.
        steps_per_epoch: optimizer steps of one epoch.
        warmup: length of the warm-up; in steps below 1 a fraction of total_steps.
        warmup_unit: what warmup counts.
        min_factor: what is left of the learning rate at the end.
    """
    rising = _warmup_steps(warmup, warmup_unit, total_steps, steps_per_epoch)
    return LambdaLR(
        optimizer,
        _falling(lambda progress: (1 + math.cos(math.pi * progress)) / 2, rising, total_steps, min_factor),
    )


@SCHEDULERS.register("step")
def step(
    optimizer: Optimizer,
    total_steps: int,
    steps_per_epoch: int,
    every: Every = 30,
    unit: Unit = "epoch",
    gamma: float = 0.1,
    warmup: Warmup = 0.0,
    warmup_unit: Unit = "step",
) -> LRScheduler:
    """The learning rate times ``gamma`` after every ``every`` epochs or steps of the run.

    Args:
        optimizer: whose learning rates are scaled.
        total_steps: optimizer steps of the run.
        steps_per_epoch: optimizer steps of one epoch.
        every: units between two changes.
        unit: what every counts.
        gamma: factor of each change.
        warmup: length of the warm-up; in steps below 1 a fraction of total_steps.
        warmup_unit: what warmup counts.
    """
    length = every * (steps_per_epoch if unit == "epoch" else 1)
    rising = _warmup_steps(warmup, warmup_unit, total_steps, steps_per_epoch)
    return LambdaLR(optimizer, _risen(lambda taken: gamma ** (taken // length), rising))


def _warmup_steps(warmup: float, unit: Unit, total_steps: int, steps_per_epoch: int) -> int:
    if unit == "epoch":
        return round(warmup * steps_per_epoch)
    return round(warmup * total_steps) if warmup < 1 else round(warmup)


def _risen(factor: Callable[[int], float], rising: int) -> Callable[[int], float]:
    """A schedule with a linear warm-up."""
    return lambda step: factor(step) * min(1.0, (step + 1) / max(1, rising))


def _falling(
    shape: Callable[[float], float], rising: int, total_steps: int, min_factor: float
) -> Callable[[int], float]:
    """Warm-up, then a shape that goes from 1 at 0 to 0 at 1, raised to end at min_factor."""

    def factor(step: int) -> float:
        progress = min(1.0, max(0, step - rising) / max(1, total_steps - rising))
        return min_factor + (1 - min_factor) * shape(progress)

    return _risen(factor, rising)


@SCHEDULERS.register("one_cycle")
def one_cycle(
    optimizer: Optimizer,
    total_steps: int,
    max_lr: float | None = None,
    pct_start: float = 0.3,
    div_factor: float = 25.0,
    final_div_factor: float = 10000.0,
) -> LRScheduler:
    """Up and down once over the run: :class:`torch.optim.lr_scheduler.OneCycleLR` (Smith 2018, arXiv:1803.09820).

    Args:
        optimizer: whose learning rates are set.
        total_steps: optimizer steps of the run.
        max_lr: the highest learning rate; None takes the optimizer's.
        pct_start: part of the steps on the way up.
        div_factor: max_lr over the first learning rate.
        final_div_factor: the first learning rate over the last.
    """
    return OneCycleLR(
        optimizer,
        max_lr=[group["lr"] for group in optimizer.param_groups] if max_lr is None else max_lr,
        total_steps=max(2, total_steps),
        pct_start=pct_start,
        div_factor=div_factor,
        final_div_factor=final_div_factor,
        cycle_momentum=False,
    )
