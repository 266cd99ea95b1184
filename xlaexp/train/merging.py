"""States of torchmetrics objects, merged over replicas as each of them says."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

State = tuple[int, dict[str, Any]]
"""How often an object was updated, and its states by name."""


def _parts(metric: Any) -> list[Any]:
    """A torchmetrics object and those inside it that have states of their own, in an order that is always the same."""
    return [part for part in metric.modules() if hasattr(part, "_reductions")]


def states(metric: Any) -> list[State]:
    """The states of a torchmetrics object and of those inside it.

    Args:
        metric: of torchmetrics.
    """
    return [_state(part) for part in _parts(metric)]


def _state(part: Any) -> State:
    """How often it was updated, and its states."""
    return part._update_count, {name: getattr(part, name) for name in part._reductions}


@contextmanager
def merged(metric: Any, shares: Sequence[Sequence[State]]) -> Iterator[None]:
    """A torchmetrics object with the states of all replicas for as long as it lasts.

    Args:
        metric: of replica 0.
        shares: for each replica its :func:`states`.
    """
    parts = _parts(metric)
    own = states(metric)
    if len(shares) > 1:
        for part, *found in zip(parts, *shares, strict=True):
            _merge(part, found)
    try:
        yield
    finally:  # a merged state may have another type, which cannot be reset
        for part, (count, state) in zip(parts, own, strict=True):
            part._update_count, part._computed = count, None
            for name, value in state.items():
                setattr(part, name, value)


def _merge(part: Any, shares: Sequence[State]) -> None:
    """Gives a torchmetrics object the states of all replicas, each merged by its ``dist_reduce_fx``.

    It is what ``Metric._sync_dist`` does over torch.distributed (torchmetrics 1.9), in one exchange. Replicas that
    had no sample at all are left out: theirs are no states of anything.
    """
    there = [state for count, state in shares if count]
    part._update_count = sum(count for count, _ in shares)
    part._computed = None
    for name, reduce in part._reductions.items():
        values = [state[name] for state in there]
        if len(values) > 1:
            if isinstance(values[0], list):
                joined: Any = [item for value in values for item in value]
            else:
                joined = torch.stack(values)
            values = [reduce(joined) if reduce is not None and len(joined) else joined]
        if values:
            setattr(part, name, values[0])
