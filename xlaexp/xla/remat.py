"""Rematerialisation: blocks of a model are computed again in the backward pass instead of being kept."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch_xla.utils.checkpoint import checkpoint


def rematerialise(model: nn.Module) -> int:
    """Makes every block of a model one that keeps its inputs only (Chen et al. 2016, arXiv:1604.06174).

    A block is a module with modules of its own in an ``nn.Sequential`` or ``nn.ModuleList``: a residual block, a layer
    of a transformer. The numbers do not change.

    Returns:
        How many blocks there are.
    """
    found = list(_blocks(model))
    for block in found:
        block.forward = _Again(block, block.forward).forward
    return len(found)


def _blocks(module: nn.Module) -> Iterator[nn.Module]:
    inside = isinstance(module, nn.Sequential | nn.ModuleList)
    for child in module.children():
        composite = any(True for _ in child.children())
        if inside and composite and not isinstance(child, nn.Sequential | nn.ModuleList):
            yield child
        else:
            yield from _blocks(child)


class _Again(nn.Module):
    """The forward of a block. A module, because torch_xla's checkpoint keeps the weights of the first computation
    apart from those of the second only if it is given a method of a module that has them (2.9.0)."""

    def __init__(self, block: nn.Module, forward: Callable[..., Any]) -> None:
        super().__init__()
        self.block = block
        self._forward = forward

    def forward(self, *args: Any) -> Any:
        if not torch.is_grad_enabled() or not any(isinstance(a, torch.Tensor) and a.requires_grad for a in args):
            return self._forward(*args)
        return checkpoint(self.compute, *args, use_reentrant=True)

    def compute(self, *args: Any) -> Any:
        if not torch.is_grad_enabled():  # the first time
            return self._forward(*args)
        with _without_statistics(self.block):
            return self._forward(*args)


@contextmanager
def _without_statistics(block: nn.Module) -> Iterator[None]:
    """Normalises by the batch as in training, and leaves the running statistics alone: they have been moved already."""
    norms = [m for m in block.modules() if isinstance(m, nn.modules.batchnorm._NormBase) and m.track_running_stats]
    for norm in norms:
        norm.track_running_stats = False
    try:
        yield
    finally:
        for norm in norms:
            norm.track_running_stats = True
