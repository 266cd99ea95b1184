"""Batches through MpDeviceLoader and back: as they were, in the order in which they came."""

from collections.abc import Iterator
from typing import Any, Protocol

import torch
from torch.utils import _pytree as pytree


class Sized(Protocol):
    """What a feed iterates over: a DataLoader, or anything with batches and a length."""

    def __iter__(self) -> Iterator[Any]: ...
    def __len__(self) -> int: ...


class Packed:
    """A loader for MpDeviceLoader: numbered lists of tensors, of which the batches can be made again.

    MpDeviceLoader turns tuples into lists and dictionaries into OrderedDicts, ends the epoch in silence where the
    loader raises, and with several transfer threads hands batches out in any order.

    Args:
        loader: what to load.

    Attributes:
        error: what the loader has raised.
    """

    def __init__(self, loader: Sized) -> None:
        self._loader = loader
        self._shapes: dict[int, tuple[Any, list[Any]]] = {}
        self._early: dict[int, list[torch.Tensor]] = {}
        self._next = 0
        self.error: Exception | None = None

    def __iter__(self) -> Iterator[tuple[int, list[torch.Tensor]]]:
        try:
            for number, batch in enumerate(self._loader):
                leaves, structure = pytree.tree_flatten(batch)
                tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
                others = [None if isinstance(leaf, torch.Tensor) else (leaf,) for leaf in leaves]
                self._shapes[number] = structure, others
                yield number, tensors
        except Exception as error:
            self.error = error

    def __len__(self) -> int:
        return len(self._loader)

    def ready(self, number: int, tensors: list[torch.Tensor]) -> Iterator[Any]:
        """The batches whose turn it is, now that one more has come: none, it, or it and others that came early."""
        self._early[number] = tensors
        while self._next in self._early:
            moved = iter(self._early.pop(self._next))
            structure, others = self._shapes.pop(self._next)
            self._next += 1
            leaves = [next(moved) if other is None else other[0] for other in others]
            yield pytree.tree_unflatten(leaves, structure)
