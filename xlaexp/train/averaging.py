"""An exponential moving average (EMA) of the weights."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer


class Average:
    """Follows the parameters of a model: ``average = decay * average + (1 - decay) * weights`` after each step.

    Polyak and Juditsky 1992 average all iterates; the exponential form is that of Tarvainen and Valpola 2017
    (arXiv:1703.01780). Buffers are not averaged: an evaluation uses the model's own.

    Args:
        model: on the device.
        optimizer: after whose step the average moves.
        decay: between 0 and 1.
    """

    def __init__(self, model: nn.Module, optimizer: Optimizer, decay: float) -> None:
        self._parameters = dict(model.named_parameters())
        self._decay = decay
        # Copied on the host: a copy on the device would be one more graph before the first step.
        self._averages = {name: p.detach().cpu().to(p.device) for name, p in self._parameters.items()}
        optimizer.register_step_post_hook(self._move)

    def _move(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        with torch.no_grad():
            for name, parameter in self._parameters.items():
                self._averages[name] = self._averages[name].lerp(parameter.detach(), 1 - self._decay)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Puts the averages into the model for as long as it lasts."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def _swap(self) -> None:
        for name, parameter in self._parameters.items():
            parameter.data, self._averages[name] = self._averages[name], parameter.data

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The averages by the names of the parameters."""
        return dict(self._averages)

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Puts averages back."""
        self._averages = {name: state[name].to(p.device) for name, p in self._parameters.items()}
