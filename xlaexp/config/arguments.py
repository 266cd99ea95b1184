"""Checks a component's arguments against its signature, as read from source.

An argument that is annotated as a path (``pathlib.Path``, ``os.PathLike``, ``str | Path``) is made absolute, because
``hydra.job.chdir`` and launchers change the working directory of a job. One that is annotated ``str`` may be anything
and is left as it is. ``Annotated[int, Field(ge=1)]`` sets bounds, as pydantic has it.
"""

import builtins
import collections.abc
import os
import pathlib
import types
import typing
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError, ValidationInfo

from xlaexp.registry import unknown
from xlaexp.signatures import Signature


class _Opaque:
    """Stands for a type that cannot come from a config (a Tensor, a module)."""


def _absolute(path: pathlib.Path, info: ValidationInfo) -> pathlib.Path:
    return pathlib.Path(str(info.context), path.expanduser())


def _absolute_text(text: str, info: ValidationInfo) -> str:
    """The same where a string stands for a path, too; it may also be a URL."""
    return text if not text or "://" in text else str(_absolute(pathlib.Path(text), info))


_PATHS = (pathlib.Path, pathlib.PurePath, os.PathLike)
_Path = Annotated[pathlib.Path, AfterValidator(_absolute)]
_PathText = Annotated[str, AfterValidator(_absolute_text)]
# No modules: an annotation is evaluated, and must not be able to do anything.
_MODULES = {
    "os": types.SimpleNamespace(PathLike=os.PathLike),
    "pathlib": types.SimpleNamespace(Path=pathlib.Path, PurePath=pathlib.PurePath),
}


class _Names(dict[str, Any]):
    """Names that an annotation may use; every other is opaque."""

    def __missing__(self, name: str) -> Any:
        if name in ("int", "float", "bool", "str", "list", "tuple", "dict", "set", "None"):
            return getattr(builtins, name, None)
        if name in _MODULES:
            return _MODULES[name]
        if name == "Field":
            return Field
        if name in ("Path", "PurePath", "PathLike"):
            return getattr(pathlib, name, os.PathLike)
        if hasattr(collections.abc, name):
            return getattr(collections.abc, name)
        return getattr(typing, name, _Opaque)


_MEMBERS = frozenset({"int", "float", "str", "bool", "constrained", "plain", "mp_device_loader"})
"""What pydantic calls members of a union."""


@cache
def _type(annotation: str) -> Any:
    """The part of an annotation that a config value can be checked against; Any where there is none."""
    try:
        return _clean(eval(annotation, {"__builtins__": {}}, _Names()))
    except Exception:  # an annotation we cannot read is no error of the user's
        return Any


def _clean(tp: Any) -> Any:
    if isinstance(tp, str | typing.ForwardRef):  # an annotation in quotes
        return _type(tp if isinstance(tp, str) else tp.__forward_arg__)
    if tp is _Opaque or tp is collections.abc.Callable:
        return Any
    origin, args = get_origin(tp), get_args(tp)
    if tp in _PATHS or origin in _PATHS:
        return _Path
    if origin in (Union, types.UnionType):
        kept = tuple(_clean(arg) for arg in args if arg is not _Opaque)
        if _Path in kept:
            kept = tuple(_PathText if arg is str else arg for arg in kept)
        return Union[kept] if kept else Any  # noqa: UP007 (built from a tuple)
    if origin is typing.Literal or not args:
        return tp
    if origin is collections.abc.Callable:
        return Any
    return origin[tuple(arg if arg is Ellipsis else _clean(arg) for arg in args)]


def check(
    prefix: str,
    what: str,
    given: Mapping[str, Any],
    signature: Signature,
    offered: frozenset[str],
    directory: pathlib.Path,
) -> tuple[dict[str, Any], list[str]]:
    """Validates ``given`` against a signature.

    Args:
        prefix: config node of the component ("model").
        what: the component, for messages ("model 'mlp'").
        given: arguments from the config.
        signature: what the component takes.
        offered: arguments that the builder passes by itself.
        directory: what relative paths are relative to: where the command was given.

    Returns:
        The arguments, converted to the annotated types, and one message for each problem.
    """
    errors = []
    values = dict(given)
    accepted = [name for name in signature.parameters if name not in offered or name in given]
    for name, value in given.items():
        parameter = signature.parameters.get(name)
        if parameter is None:
            if not signature.open:
                errors.append(f"{prefix}.{name}: {unknown(f'argument of {what}', name, accepted)}")
            continue
        if parameter.annotation is None:
            continue
        try:
            adapter = TypeAdapter(_type(parameter.annotation))
            values[name] = adapter.validate_python(value, context=directory)
        except ValidationError as error:
            errors += [f"{m}; override it as {prefix}.{name}=..." for m in messages(error, f"{prefix}.{name}")]
    for name, parameter in signature.parameters.items():
        if parameter.required and name not in values and name not in offered:
            errors.append(f"{prefix}.{name}: {what} needs it; give {prefix}.{name}=...")
    return values, errors


def messages(error: ValidationError, prefix: str) -> Iterator[str]:
    """One line for each problem that pydantic found, with the config key it is about."""
    seen: dict[str, list[str]] = {}
    for problem in error.errors():
        # Members of a union come as parts of the location; a config key has only names and indices.
        location = [str(part) for part in problem["loc"] if str(part).isidentifier() or isinstance(part, int)]
        location = [part for part in location if part not in _MEMBERS]
        key = ".".join([prefix, *location]) if prefix else ".".join(location)
        if problem["type"] == "missing":
            seen.setdefault(key, []).append("is missing")
            continue
        seen.setdefault(key, []).append(f"{problem['msg'][0].lower()}{problem['msg'][1:]}, got {problem['input']!r}")
    for key, texts in seen.items():
        yield f"{key}: {' or '.join(dict.fromkeys(texts))}"
