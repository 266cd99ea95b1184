"""Modules and definitions found in source text, so that a config is checked without importing torch."""

import ast
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

Definition = ast.ClassDef | ast.FunctionDef


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
            (p for p in (path.parent / part / "__init__.py", path.parent / f"{part}.py") if p.is_file()),
            Path(),
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


def imports(module: str) -> set[str]:
    """Top-level packages that a module imports when it is imported itself (not inside functions)."""
    tree = parse(module)
    found: set[str] = set()
    for statement in statements(tree) if tree else ():
        if isinstance(statement, ast.Import):
            found |= {alias.name.split(".")[0] for alias in statement.names}
        elif isinstance(statement, ast.ImportFrom):
            found.add(_base(module, statement).split(".")[0])
    return found


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


def assigned(module: str, name: str) -> ast.expr | None:
    """What a module assigns to a name at its top; None where it does not."""
    tree = parse(module)
    for statement in statements(tree) if tree else ():
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            value: ast.expr | None = getattr(statement, "value", None)
            return value
    return None


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


def expression(module: str, node: ast.expr) -> Located | None:
    """What a name or dotted name in ``module`` stands for."""
    if isinstance(node, ast.Name):
        return _find(module, node.id, frozenset())
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        tree = parse(module)
        for statement in statements(tree) if tree else ():
            if isinstance(statement, ast.Import | ast.ImportFrom):
                for alias in statement.names:
                    if (alias.asname or alias.name) == node.value.id:
                        prefix = f"{_base(module, statement)}." if isinstance(statement, ast.ImportFrom) else ""
                        return locate(f"{prefix}{alias.name}.{node.attr}")
    return None
