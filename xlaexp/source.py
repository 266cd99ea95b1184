"""Names and signatures read from source text, so that a config is checked without importing torch.

``signature("torch.optim.SGD")`` parses ``torch/optim/__init__.py``, follows its imports to
``torch/optim/sgd.py`` and reads ``SGD.__init__``; nothing is executed. ``**kwargs`` are followed into the
call that forwards them, so that ``torchvision.models.resnet18`` is known to take ``num_classes``.
"""

import ast
import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

Definition = ast.ClassDef | ast.FunctionDef


@dataclass(frozen=True)
class Parameter:
    """One keyword argument of a component."""

    required: bool
    annotation: str | None


@dataclass(frozen=True)
class Signature:
    """The keyword arguments of a class or function.

    Attributes:
        parameters: by name, without ``self``.
        open: whether any other keyword has to be let through, because the source does not say.
        positional: names in the order in which positional arguments fill them.
    """

    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    open: bool = False
    positional: tuple[str, ...] = ()


@dataclass(frozen=True)
class Located:
    """A class or function and the module whose text defines it."""

    module: str
    node: Definition


@cache
def module_file(module: str) -> Path | None:
    """The source file of a module, found without importing it or its parents."""
    top, *rest = module.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin)
    for part in rest:
        if path.name != "__init__.py":
            return None
        path = next(
            (p for p in (path.parent / part / "__init__.py", path.parent / f"{part}.py") if p.is_file()), Path()
        )
    return path if path.suffix == ".py" and path.is_file() else None


@cache
def parse(module: str) -> ast.Module | None:
    """The syntax tree of a module, or None where there is no source that parses."""
    path = module_file(module)
    if path is None:
        return None
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError):
        return None


def statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """Top-level statements, those under a top-level ``if`` or ``try`` included."""
    pending: list[ast.stmt] = list(tree.body)
    while pending:
        statement = pending.pop(0)
        yield statement
        if isinstance(statement, ast.If):
            pending[:0] = statement.body + statement.orelse
        elif isinstance(statement, ast.Try):
            pending[:0] = statement.body


def submodules(package: str) -> list[str]:
    """A package and all modules in it (a plain module: itself), by name."""
    path = module_file(package)
    if path is None or path.name != "__init__.py":
        return [package] if path else []
    names = []
    for file in sorted(path.parent.rglob("*.py")):
        parts = file.relative_to(path.parent).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        names.append(".".join((package, *parts)))
    return names


def locate(dotted: str) -> Located | None:
    """The definition that ``package.module.Name`` stands for, through imports and aliases."""
    parts = dotted.split(".")
    for split in range(len(parts) - 1, 0, -1):
        module = ".".join(parts[:split])
        if module_file(module) is not None:
            return _find(module, parts[split], frozenset()) if split == len(parts) - 1 else None
    return None


def _find(module: str, name: str, seen: frozenset[tuple[str, str]]) -> Located | None:
    tree = parse(module)
    if tree is None or (module, name) in seen:
        return None
    seen |= {(module, name)}
    stars: list[str] = []
    for statement in statements(tree):
        if isinstance(statement, ast.ClassDef | ast.FunctionDef) and statement.name == name:
            return Located(module, statement)
        if isinstance(statement, ast.ImportFrom):
            base = _base(module, statement)
            for alias in statement.names:
                if (alias.asname or alias.name) == name:
                    return _find(base, alias.name, seen)
                if alias.name == "*":
                    stars.append(base)
        if (
            isinstance(statement, ast.Assign)
            and isinstance(statement.value, ast.Name)
            and any(isinstance(target, ast.Name) and target.id == name for target in statement.targets)
        ):
            return _find(module, statement.value.id, seen)
    return next((found for base in stars if (found := _find(base, name, seen))), None)


def _base(module: str, statement: ast.ImportFrom) -> str:
    """The absolute module that a ``from ... import`` in ``module`` names."""
    if not statement.level:
        return statement.module or ""
    path = module_file(module)
    package = module.split(".")
    if path is None or path.name != "__init__.py":
        package = package[:-1]
    package = package[: len(package) - statement.level + 1]
    return ".".join(package + ([statement.module] if statement.module else []))


def signature(dotted: str) -> Signature | None:
    """The keyword arguments of ``package.module.Name``; None where the name is not found in source."""
    located = locate(dotted)
    return _signature(located, frozenset()) if located else None


def _signature(located: Located, seen: frozenset[str]) -> Signature:
    node = located.node
    key = f"{located.module}.{node.name}"
    if key in seen:
        return Signature(open=True)
    seen |= {key}
    if isinstance(node, ast.FunctionDef):
        return _function(located.module, node, None, seen)
    init = next((s for s in node.body if isinstance(s, ast.FunctionDef) and s.name == "__init__"), None)
    if init is not None:
        return _function(located.module, init, node, seen)
    if any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list):
        fields = [s for s in node.body if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)]
        known = {
            s.target.id: Parameter(s.value is None, ast.unparse(s.annotation))
            for s in fields
            if isinstance(s.target, ast.Name)
        }
        return Signature(known, open=bool(node.bases), positional=tuple(known))
    return _inherited(located.module, node, seen)


def _inherited(module: str, node: ast.ClassDef, seen: frozenset[str]) -> Signature:
    for base in node.bases:
        located = _expression(module, base)
        if located is None:
            return Signature(open=not (isinstance(base, ast.Name) and base.id in ("object", "Protocol", "ABC")))
        return _signature(located, seen)
    return Signature()


def _expression(module: str, expression: ast.expr) -> Located | None:
    """What a name or dotted name in ``module`` stands for."""
    if isinstance(expression, ast.Name):
        return _find(module, expression.id, frozenset())
    if isinstance(expression, ast.Attribute) and isinstance(expression.value, ast.Name):
        tree = parse(module)
        for statement in statements(tree) if tree else ():
            if isinstance(statement, ast.Import | ast.ImportFrom):
                for alias in statement.names:
                    if (alias.asname or alias.name) == expression.value.id:
                        prefix = f"{_base(module, statement)}." if isinstance(statement, ast.ImportFrom) else ""
                        return locate(f"{prefix}{alias.name}.{expression.attr}")
    return None


def _function(module: str, node: ast.FunctionDef, owner: ast.ClassDef | None, seen: frozenset[str]) -> Signature:
    arguments = node.args
    positional = arguments.posonlyargs + arguments.args
    required = len(positional) - len(arguments.defaults)
    known = {
        a.arg: Parameter(i < required, ast.unparse(a.annotation) if a.annotation else None)
        for i, a in enumerate(positional)
    }
    if owner is not None:
        known.pop(positional[0].arg, None)
    order = tuple(known)
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        annotation = ast.unparse(argument.annotation) if argument.annotation else None
        known[argument.arg] = Parameter(default is None, annotation)
    if arguments.kwarg is None:
        return Signature(known, positional=order)
    forwarded, is_open = _forwarded(module, node, owner, arguments.kwarg.arg, seen)
    return Signature({**forwarded, **known}, open=is_open, positional=order)


def _forwarded(
    module: str, node: ast.FunctionDef, owner: ast.ClassDef | None, kwargs: str, seen: frozenset[str]
) -> tuple[dict[str, Parameter], bool]:
    """The keywords that a function takes as ``**kwargs``, and whether it may take others too."""
    known: dict[str, Parameter] = {}
    followed = is_open = False
    for call in (n for n in ast.walk(node) if isinstance(n, ast.Call)):
        method = call.func
        if (
            isinstance(method, ast.Attribute)
            and isinstance(method.value, ast.Name)
            and method.value.id == kwargs
            and method.attr in ("pop", "get", "setdefault")
            and call.args
            and isinstance(call.args[0], ast.Constant)
        ):
            known[str(call.args[0].value)] = Parameter(False, None)
        if not any(k.arg is None and isinstance(k.value, ast.Name) and k.value.id == kwargs for k in call.keywords):
            continue
        target = _callee(module, method, owner, seen)
        if target is None:
            return known, True
        is_open |= target.open
        given = {*target.positional[: len(call.args)], *(k.arg for k in call.keywords if k.arg)}
        known |= {name: p for name, p in target.parameters.items() if name not in given}
        followed = True
    return known, is_open or not followed


def _callee(module: str, func: ast.expr, owner: ast.ClassDef | None, seen: frozenset[str]) -> Signature | None:
    if isinstance(func, ast.Attribute) and ast.unparse(func) == "super().__init__" and owner is not None:
        return _inherited(module, owner, seen)
    located = _expression(module, func)
    return _signature(located, seen) if located else None
