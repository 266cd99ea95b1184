"""Which components there are, by kind and name, found in source text without importing them."""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from xlaexp import source
from xlaexp.registry import REGISTRIES

BUILTIN = ("xlaexp.components", "xlaexp.tracking")


@dataclass(frozen=True)
class Entry:
    """Where a named component is defined.

    Attributes:
        module: the module to import.
        attribute: the name in that module.
    """

    module: str
    attribute: str


@cache
def registered(package: str) -> dict[str, dict[str, Entry]]:
    """Components that ``@REGISTRY.register("name")`` decorators in a package name: kind -> name -> entry."""
    symbols = {registry.symbol: kind for kind, registry in REGISTRIES.items()}
    found: dict[str, dict[str, Entry]] = {kind: {} for kind in REGISTRIES}
    for module in source.submodules(package):
        tree = source.parse(module)
        for statement in source.statements(tree) if tree else ():
            if not isinstance(statement, ast.ClassDef | ast.FunctionDef):
                continue
            for decorator in statement.decorator_list:
                match decorator:
                    case ast.Call(
                        func=ast.Attribute(value=ast.Name(id=symbol) | ast.Attribute(attr=symbol), attr="register"),
                        args=[ast.Constant(value=str(name))],
                    ) if symbol in symbols:
                        found[symbols[symbol]].setdefault(name, Entry(module, statement.name))
    return found


@cache
def torchvision_models() -> tuple[str, ...]:
    """Names of torchvision's classification models (the functions under ``@register_model()``)."""
    return tuple(sorted(_registered_models("torchvision.models")))


def _registered_models(module: str) -> Iterator[str]:
    """Models of a module and of those it star-imports; detection and the like are imported as packages."""
    tree = source.parse(module)
    for statement in source.statements(tree) if tree else ():
        match statement:
            case ast.ImportFrom(module=str(sibling), level=1, names=[ast.alias(name="*")]):
                yield from _registered_models(f"torchvision.models.{sibling}")
            case ast.FunctionDef(decorator_list=decorators) if any(
                "register_model" in ast.unparse(d) for d in decorators
            ):
                yield statement.name


@cache
def torch_optimizers() -> tuple[str, ...]:
    """Names of torch.optim's optimizer classes."""
    tree = source.parse("torch.optim")
    exported: list[str] = []
    for statement in source.statements(tree) if tree else ():
        match statement:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=ast.List(elts=names)):
                exported += [n.value for n in names if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    # LBFGS evaluates the model several times a step: it has no single step boundary.
    return tuple(sorted(n for n in set(exported) if n[0].isupper() and n not in ("Optimizer", "LBFGS")))


@cache
def torchmetrics_classes() -> Mapping[str, str]:
    """Names of torchmetrics' metrics, and for each the module to import; none where it is not installed.

    Without those that need other packages, and the wrappers, which are built from other metrics.
    """
    path = source.module_file("torchmetrics")
    if path is None:
        return {}
    packages = sorted(p.parent.name for p in path.parent.glob("*/__init__.py"))
    packages = [p for p in packages if p not in ("functional", "utilities", "wrappers")]
    modules = ["torchmetrics", *(f"torchmetrics.{package}" for package in packages)]
    left_out = {*_exported("torchmetrics.wrappers"), "MetricCollection"}
    known = {name: module for module in reversed(modules) for name in _exported(module)}
    return {name: known[name] for name in sorted(known) if name[0].isupper() and name not in left_out}


def _exported(module: str) -> Iterator[str]:
    """Names in ``__all__`` that are there whatever else is installed."""
    tree = source.parse(module)
    for statement in tree.body if tree else ():
        match statement:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=ast.List(elts=elements)):
                yield from (n.value for n in elements if isinstance(n, ast.Constant) and isinstance(n.value, str))


def missing(kind: str, name: str) -> str | None:
    """Advice for a component of a package that is not installed; None for any other.

    Args:
        kind: of component.
        name: registered name or dotted path.
    """
    package = re.split(r"[./]", name)[0]
    if kind != "metrics" or package != "torchmetrics" or source.module_file(package):
        return None
    return f"{name} needs torchmetrics, which is not installed; pip install 'xlaexp[torchmetrics]'"


def names(kind: str, plugins: Iterable[str] = ()) -> list[str]:
    """Every name that ``<kind>.name`` can take."""
    known = {name for package in (*BUILTIN, *plugins) for name in registered(package)[kind]}
    if kind == "model":
        known |= {f"torchvision/{name}" for name in torchvision_models()}
    if kind == "optimizer":
        known |= set(torch_optimizers())
    if kind == "metrics":
        known |= {f"torchmetrics/{name}" for name in torchmetrics_classes()}
    return sorted(known)


def find(kind: str, name: str, plugins: Iterable[str] = ()) -> Entry | None:
    """The entry of ``name``, or None where there is none."""
    for package in (*plugins, *BUILTIN):
        if entry := registered(package)[kind].get(name):
            return entry
    if kind == "model" and name.removeprefix("torchvision/") in torchvision_models() and "/" in name:
        return Entry("torchvision.models", name.removeprefix("torchvision/"))
    if kind == "optimizer" and name in torch_optimizers():
        return Entry("torch.optim", name)
    if kind == "metrics" and name.startswith("torchmetrics/"):
        name = name.removeprefix("torchmetrics/")
        if module := torchmetrics_classes().get(name):
            return Entry(module, name)
    return None
