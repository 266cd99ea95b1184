"""Signatures read from source text.

``signature("torch.optim.SGD")`` parses ``torch/optim/__init__.py``, follows its imports to
``torch/optim/sgd.py`` and reads ``SGD.__init__``; nothing is executed. ``**kwargs`` are followed into the
call that forwards them, so that ``torchvision.models.resnet18`` is known to take ``num_classes``.
"""

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from xlaexp.source import Located, assigned, expression, locate

REQUIRED = object()
UNREAD = object()


@dataclass(frozen=True)
class Parameter:
    """One keyword argument of a component."""

    annotation: str | None
    default: Any = REQUIRED
    """The default where it is a literal, REQUIRED where there is none, UNREAD where it is an expression."""

    @property
    def required(self) -> bool:
        """Whether the caller has to give it."""
        return self.default is REQUIRED


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
    methods = {s.name: s for s in node.body if isinstance(s, ast.FunctionDef)}
    if init := methods.get("__init__") or methods.get("__new__"):
        return _function(located.module, init, node, seen)
    if any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list):
        fields = [s for s in node.body if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)]
        known = {
            s.target.id: Parameter(_annotation(located.module, s.annotation), _default(s.value))
            for s in fields
            if isinstance(s.target, ast.Name)
        }
        return Signature(known, open=bool(node.bases), positional=tuple(known))
    return _inherited(located.module, node, seen)


def _annotation(module: str, node: ast.expr | None) -> str | None:
    """An annotation as text, with the names that its module gives to types written out."""
    if node is None:
        return None
    if isinstance(node, ast.Name) and isinstance(meant := assigned(module, node.id), ast.Subscript | ast.BinOp):
        return ast.unparse(meant)
    return ast.unparse(node)


def _default(node: ast.expr | None) -> Any:
    if node is None:
        return REQUIRED
    try:
        return ast.literal_eval(node)
    except ValueError:
        return UNREAD


def _inherited(module: str, node: ast.ClassDef, seen: frozenset[str]) -> Signature:
    for base in node.bases:
        located = expression(module, base)
        if located is None:
            return Signature(open=not (isinstance(base, ast.Name) and base.id in ("object", "Protocol", "ABC")))
        return _signature(located, seen)
    return Signature()


def _function(module: str, node: ast.FunctionDef, owner: ast.ClassDef | None, seen: frozenset[str]) -> Signature:
    arguments = node.args
    positional = arguments.posonlyargs + arguments.args
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults))
    defaults += arguments.defaults
    known = {
        a.arg: Parameter(_annotation(module, a.annotation), _default(default))
        for a, default in zip(positional, defaults, strict=True)
    }
    if owner is not None:
        known.pop(positional[0].arg, None)
    order = tuple(known)
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        known[argument.arg] = Parameter(_annotation(module, argument.annotation), _default(default))
    if arguments.kwarg is None:
        return Signature(known, positional=order)
    forwarded, is_open = _forwarded(module, node, owner, arguments.kwarg.arg, seen)
    return Signature({**forwarded, **known}, open=is_open, positional=order)


def _forwarded(
    module: str, node: ast.FunctionDef, owner: ast.ClassDef | None, kwargs: str, seen: frozenset[str]
) -> tuple[dict[str, Parameter], bool]:
    """The keywords that a function takes as ``**kwargs``, and whether it may take others too."""
    known: dict[str, Parameter] = {}
    # ``if kwargs: raise``: it takes what it has popped, and nothing else.
    followed = any(
        isinstance(n, ast.If) and ast.unparse(n.test) == kwargs and any(isinstance(s, ast.Raise) for s in n.body)
        for n in ast.walk(node)
    )
    is_open = False
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
            known[str(call.args[0].value)] = Parameter(None, UNREAD)
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
    if owner is not None and re.fullmatch(r"super\(.*\)\.__init__", ast.unparse(func)):
        return _inherited(module, owner, seen)
    located = expression(module, func)
    return _signature(located, seen) if located else None
