"""Learning-rate schedules, stepped once an optimizer step. None is 0 in a step that is taken."""

import math
from collections.abc import Callable

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, OneCycleLR

from xlaexp.registry import SCHEDULERS


@SCHEDULERS.register("constant")
def constant(optimizer: Optimizer) -> LRScheduler:
    """The optimizer's learning rate, unchanged."""
    return LambdaLR(optimizer, lambda step: 1.0)


@SCHEDULERS.register("cosine")
def cosine(optimizer: Optimizer, total_steps: int, warmup: float = 0.0, min_factor: float = 0.0) -> LRScheduler:
    """Linear warm-up, then half a cosine (Loshchilov and Hutter 2016, arXiv:1608.03983, equation 5).

    Args:
        optimizer: whose learning rates are scaled.
        total_steps: optimizer steps of the run; the end of the cosine.
        warmup: steps of the warm-up; below 1 a fraction of total_steps.
        min_factor: what is left of the learning rate at the end.
    """
    rising = round(warmup * total_steps) if warmup < 1 else round(warmup)

    def factor(step: int) -> float:
        if step < rising:
            return (step + 1) / rising
        progress = min(1.0, (step - rising) / max(1, total_steps - rising))
        return min_factor + (1 - min_factor) * (1 + math.cos(math.pi * progress)) / 2

    return LambdaLR(optimizer, factor)


@SCHEDULERS.register("step")
def step(optimizer: Optimizer, steps_per_epoch: int, epochs: int = 30, gamma: float = 0.1) -> LRScheduler:
    """The learning rate times ``gamma`` after every ``epochs`` epochs.

    Args:
        optimizer: whose learning rates are scaled.
        steps_per_epoch: optimizer steps of one epoch.
        epochs: epochs between two changes.
        gamma: factor of each change.

    Raises:
        ValueError: epochs is less than 1.
    """
    if epochs < 1:
        raise ValueError(f"scheduler.epochs={epochs} is less than 1")
    every: Callable[[int], float] = lambda taken: gamma ** (taken // (steps_per_epoch * epochs))  # noqa: E731
    return LambdaLR(optimizer, every)


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
