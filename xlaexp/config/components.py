"""Finds the components that a config names and checks their arguments."""

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from xlaexp import source
from xlaexp.config import arguments, catalog
from xlaexp.config.schema import Component
from xlaexp.registry import REGISTRIES, unknown

OFFERED: Mapping[str, frozenset[str]] = {
    "model": frozenset({"num_classes", "input_shape"}),
    "data": frozenset(),
    "optimizer": frozenset({"params"}),
    "criterion": frozenset({"reduction"}),
    "scheduler": frozenset({"optimizer", "total_steps", "steps_per_epoch"}),
    "tracking": frozenset({"directory"}),
}
"""What the builder passes to a component of each kind, where its signature takes it."""


def resolve(kind: str, node: str, raw: Any, plugins: Sequence[str]) -> tuple[Component | None, list[str]]:
    """The component that a config node describes.

    Args:
        kind: kind of component, as its registry calls it.
        node: the config node, for messages.
        raw: the node's plain value.
        plugins: packages that register a user's own components.

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
    if target is not None:
        module, _, attribute = str(target).rpartition(".")
        signature = source.signature(str(target))
        if signature is None and not (module and source.module_file(module)):
            return None, [f"{node}._target_: no module {module or target!r} can be imported for {target!r}"]
        if signature is None and source.locate(str(target)) is None and _plain_module(module, attribute):
            return None, [f"{node}._target_: module {module!r} defines no {attribute!r}"]
        label, entry_attribute = str(target), attribute
    else:
        entry = catalog.find(kind, str(name), plugins)
        if entry is None:
            if plugins and str(name) in _registered_at_import(kind, plugins):
                return Component(kind, str(name), plugins[0], None, given, offered), []
            return None, [f"{node}.name: {unknown(kind, str(name), catalog.names(kind, plugins))}"]
        module, label = entry.module, str(name)
        entry_attribute = None if entry.registered else entry.attribute
        signature = source.signature(entry.path)
    signature = signature or source.Signature(open=True)
    values, errors = arguments.check(node, f"{kind} {label!r}", given, signature, offered)
    accepts = frozenset(signature.parameters) | (offered if signature.open else frozenset())
    return Component(kind, label, module, entry_attribute, values, accepts), errors


def _plain_module(module: str, attribute: str) -> bool:
    """Whether the text of a module never mentions a name, so that it cannot define it."""
    path = source.module_file(module)
    return path is not None and attribute not in path.read_text(encoding="utf-8")


def _registered_at_import(kind: str, plugins: Sequence[str]) -> set[str]:
    """Names that plugins register by code (a loop, say) rather than by a decorator in plain sight."""
    for plugin in plugins:
        importlib.import_module(plugin)
    return set(REGISTRIES[kind])
