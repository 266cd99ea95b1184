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
        self._moved: dict[int, list[torch.Tensor]] = {}
        self._next = 0
        self.error: BaseException | None = None

    def __iter__(self) -> Iterator[tuple[int, list[torch.Tensor]]]:
        try:
            for number, batch in enumerate(self._loader):
                leaves, structure = pytree.tree_flatten(batch)
                tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
                others = [None if isinstance(leaf, torch.Tensor) else (leaf,) for leaf in leaves]
                self._shapes[number] = structure, others
                yield number, tensors
        except GeneratorExit:
            raise
        except BaseException as error:  # sys.exit() in a data set would end the thread, and the epoch, in silence
            self.error = error

    def __len__(self) -> int:
        return len(self._loader)

    def put(self, number: int, tensors: list[torch.Tensor]) -> None:
        """Takes tensors that have been moved."""
        self._moved[number] = tensors

    def ready(self) -> bool:
        """Whether the next batch is here."""
        return self._next in self._moved

    def take(self) -> Any:
        """The next batch, which is here."""
        moved = iter(self._moved.pop(self._next))
        structure, others = self._shapes.pop(self._next)
        self._next += 1
        return pytree.tree_unflatten([next(moved) if other is None else other[0] for other in others], structure)
