"""Finds the components that a config names and checks their arguments."""

import ast
import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from xlaexp import source
from xlaexp.config import arguments, catalog
from xlaexp.config.schema import Component
from xlaexp.registry import REGISTRIES, unknown
from xlaexp.signatures import Signature, signature

OFFERED: Mapping[str, frozenset[str]] = {
    "model": frozenset({"num_classes", "input_shape"}),
    "data": frozenset(),
    "optimizer": frozenset({"params"}),
    "criterion": frozenset({"reduction"}),
    "scheduler": frozenset({"optimizer", "total_steps", "steps_per_epoch"}),
    "tracking": frozenset({"directory"}),
    "callbacks": frozenset({"directory"}),
    "metrics": frozenset({"num_classes"}),
}
"""What the builder passes to a component of each kind, where its signature takes it."""

MAPPINGS = ("tracking", "callbacks", "metrics")
"""Kinds of which a config has any number, each under a name."""


def resolve(
    kind: str, node: str, raw: Any, plugins: Sequence[str], directory: Path
) -> tuple[Component | None, list[str]]:
    """The component that a config node describes.

    Args:
        kind: kind of component, as its registry calls it.
        node: the config node, for messages.
        raw: the node's plain value.
        plugins: packages that register a user's own components.
        directory: what relative paths among the arguments are relative to.

    Returns:
        The component (None where it cannot be found) and one message for each problem.
    """
    if not isinstance(raw, Mapping):
        return None, [f"{node}: expected a mapping with a name, got {raw!r}; choose one with {node}=<choice>"]
    given = {str(key): value for key, value in raw.items()}
    name, target = given.pop("name", None), given.pop("_target_", None)
    if (name is None) == (target is None):
        return None, [
            f"{node}: give either {node}.name (a registered {kind}) or {node}._target_ (a dotted path), "
            f"not {'both; set ' + node + '.name=null' if name is not None else 'neither'}"
        ]
    offered = OFFERED[kind]
    if advice := catalog.missing(kind, str(target or name)):
        return None, [f"{node}: {advice}"]
    if target is not None:
        label = str(target)
        module, _, attribute = label.rpartition(".")
        if not (module and source.module_file(module)):
            return None, [f"{node}._target_: no module {module or label!r} can be imported for {label!r}"]
        if source.locate(label) is None and not _mentions(module, attribute):
            return None, [f"{node}._target_: module {module!r} defines no {attribute!r}"]
    else:
        label = str(name)
        entry = catalog.find(kind, label, plugins)
        if entry is None:
            if plugins and label in _registered_at_import(kind, plugins):
                return Component(kind, label, plugins[0], None, given, offered), []
            return None, [f"{node}.name: {unknown(kind, label, catalog.names(kind, plugins))}"]
        module, attribute = entry.module, entry.attribute
    found = signature(f"{module}.{attribute}") or Signature(open=True)
    offered = offered_to(kind, f"{module}.{attribute}", found)
    values, errors = arguments.check(node, f"{kind} {label!r}", given, found, offered, directory)
    accepts = frozenset(found.parameters) | (offered if found.open else frozenset())
    return Component(kind, label, module, attribute, values, accepts), errors


def offered_to(kind: str, dotted: str, found: Signature) -> frozenset[str]:
    """What the builder passes to a component where it takes it, and what others pass to it later.

    Args:
        kind: of component.
        dotted: its path.
        found: its signature.
    """
    if kind != "metrics":
        return OFFERED[kind]
    located = source.locate(dotted)
    is_function = located is not None and isinstance(located.node, ast.FunctionDef)
    # A function is a metric itself: its first two arguments are outputs and targets. Nothing is passed to what takes
    # any keyword: parts of torchmetrics seem to, and refuse those that they do not know.
    return OFFERED[kind] & found.parameters.keys() | frozenset(found.positional[:2] if is_function else ())


def _mentions(module: str, attribute: str) -> bool:
    """Whether the text of a module has a name in it at all, so that it may define it in some way."""
    path = source.module_file(module)
    return path is not None and attribute in path.read_text(encoding="utf-8")


def _registered_at_import(kind: str, plugins: Sequence[str]) -> set[str]:
    """Names that plugins register by code (a loop, say) rather than by a decorator in plain sight."""
    for plugin in plugins:
        importlib.import_module(plugin)
    return set(REGISTRIES[kind])
