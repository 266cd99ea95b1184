"""The one registry class, and a registry for each kind of component.

A component is registered where it is defined::

    @MODELS.register("mlp")
    class MLP(nn.Module): ...

Nothing here imports torch. Before a run starts, names and arguments are checked from the source text
of these decorators (:mod:`xlaexp.config.catalog`); the registry itself is filled when the module of a
component is imported, in the process that builds it.
"""

import difflib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

T = TypeVar("T", bound=Callable[..., Any])


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like ``name``, or None where none is like it."""
    by_folded = {candidate.casefold(): candidate for candidate in known}
    for folded, candidate in by_folded.items():
        if sorted(folded) == sorted(name.casefold()):  # letters in another order: more alike than difflib says
            return candidate
    matches = difflib.get_close_matches(name.casefold(), by_folded, n=1, cutoff=0.5)
    return by_folded[matches[0]] if matches else None


def unknown(what: str, name: str, known: Iterable[str], most: int = 12) -> str:
    """One sentence for an unknown name: the nearest known one, and what there is."""
    names = sorted(known)
    near = nearest(name, names)
    hint = f"; did you mean {near!r}?" if near else "."
    listed = ", ".join(names[:most]) + (f", ... ({len(names)} in all)" if len(names) > most else "")
    return f"unknown {what} {name!r}{hint} Known: {listed or 'none'}"


class Registry:
    """Components of one kind by name.

    Args:
        kind: what the components are, in the singular ("model"); used in messages and as config group.
        symbol: the name that the registry has in this module; decorators are found by it.
    """

    def __init__(self, kind: str, symbol: str) -> None:
        self.kind = kind
        self.symbol = symbol
        self._components: dict[str, Callable[..., Any]] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator that registers a class or function under ``name``.

        Raises:
            ValueError: ``name`` is taken by another component; the message names its owner.
        """

        def decorate(component: T) -> T:
            owner = self._components.get(name)
            # A module that is imported again (notebooks reload) may register its own component again.
            if owner is not None and _path(owner) != _path(component):
                raise ValueError(
                    f"{self.kind} {name!r} is already registered by {_path(owner)}; "
                    f"{_path(component)} needs another name"
                )
            self._components[name] = component
            return component

        return decorate

    def get(self, name: str) -> Callable[..., Any]:
        """The component registered under ``name``.

        Raises:
            KeyError: there is none; the message gives the nearest known name.
        """
        try:
            return self._components[name]
        except KeyError:
            raise KeyError(unknown(self.kind, name, self._components)) from None

    def __contains__(self, name: object) -> bool:
        return name in self._components

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._components))


def _path(component: Callable[..., Any]) -> str:
    return f"{component.__module__}.{component.__qualname__}"


MODELS = Registry("model", "MODELS")
DATASETS = Registry("data", "DATASETS")
OPTIMIZERS = Registry("optimizer", "OPTIMIZERS")
CRITERIA = Registry("criterion", "CRITERIA")
SCHEDULERS = Registry("scheduler", "SCHEDULERS")
TRACKERS = Registry("tracking", "TRACKERS")
CALLBACKS = Registry("callbacks", "CALLBACKS")
METRICS = Registry("metrics", "METRICS")

REGISTRIES = {
    registry.kind: registry
    for registry in (MODELS, DATASETS, OPTIMIZERS, CRITERIA, SCHEDULERS, TRACKERS, CALLBACKS, METRICS)
}
