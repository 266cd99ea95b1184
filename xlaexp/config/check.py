"""Every check of a composed config: types, components, and what contradicts what. All errors at once."""

import importlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from xlaexp import source
from xlaexp.config import arguments, components, cross, schema, training
from xlaexp.config.errors import ConfigError
from xlaexp.host import Host
from xlaexp.registry import unknown

_NODES: Mapping[str, Any] = {
    "device": schema.Device,
    "loader": schema.AnyLoader,
    "train": schema.Train,
    "objective": schema.Objective,
    "checkpoint": schema.Checkpoint,
    "precision": Literal["fp32", "bf16"],
    "resume": str | None,
    "mode": Literal["train", "eval"],
    "seed": schema.Count,
    "strategy": str,
    "plugins": list[str],
}
_COMPONENTS = ("model", "data", "optimizer", "criterion", "scheduler")
_SLOW_IMPORTS = frozenset({"torch", "torchvision", "torch_xla"})


def check(raw: Mapping[str, Any], host: Host, directory: Path) -> schema.Config:
    """Turns a composed, resolved config into a typed one.

    Args:
        raw: the config as plain containers.
        host: the machine that is to run it.
        directory: where the command was given; paths are relative to it.

    Raises:
        ConfigError: with every problem that was found.
    """
    evaluated, errors = training.evaluated(raw, directory)
    values = _typed({**raw, "checkpoint": training.NOTHING_SAVED} if evaluated else raw, errors)
    plugins = tuple(values.get("plugins", ()))
    for plugin in plugins:
        if source.module_file(plugin) is None:
            errors.append(f"plugins: no module {plugin!r} can be imported; start from its directory or install it")
    values |= _components(raw, plugins, errors, directory)
    values["param_groups"], problems = training.param_groups(raw.get("param_groups", "all"), values.get("optimizer"))
    errors += problems
    if problems := training.precision(raw.get("precision")):
        errors[:] = [*(e for e in errors if not e.startswith("precision:")), *problems]
    if values.get("resume") not in (None, "auto"):
        values["resume"] = str(Path(directory, Path(values["resume"]).expanduser()))
    known = {*_NODES, *_COMPONENTS, *components.MAPPINGS, "param_groups"}
    for key in raw:
        if key not in known:
            errors.append(f"{key}: {cross.hint(str(key)) or unknown('config key', str(key), known)}")
    if "device" in values:
        values["device"], problems = cross.device(values["device"], host)
        errors += problems
    if "objective" in values:
        yielded, problems = cross.metrics(values["metrics"])
        errors += problems
        errors += (problems := training.objective(values["objective"], yielded))
        if "checkpoint" in values and not problems:
            node, aims, plan = values["checkpoint"], values["objective"], values.get("train")
            values["checkpoint"], problems = training.checkpoint(node, aims, yielded, plan)
            errors += problems
    if {"device", "loader"} <= values.keys():
        errors += cross.padding(values["loader"], values["device"])
    if {"strategy", "device", "loader"} <= values.keys():
        try:
            values["strategy"] = cross.strategy(values["strategy"], values["device"], values["loader"])
        except ValueError as error:
            errors.append(str(error))
    if errors:
        raise ConfigError(errors)
    given = {"evaluated": evaluated, "plugins": plugins, "platform": host.platform, "raw": raw}
    config = schema.Config(**{**values, **given})
    if problems := _data_problems(config, host):
        raise ConfigError(problems)
    return config


def _typed(raw: Mapping[str, Any], errors: list[str]) -> dict[str, Any]:
    """Nodes that are no components, converted to their types where they can be."""
    values = {}
    for key, tp in _NODES.items():
        if key not in raw:
            errors.append(f"{key}: is missing; the config needs it")
            continue
        try:
            values[key] = TypeAdapter(tp).validate_python(_known(key, tp, raw[key], errors))
        except ValidationError as error:
            errors += [f"{m}; override it as {m.split(':')[0]}=..." for m in arguments.messages(error, key)]
    return values


def _known(key: str, tp: Any, raw: Any, errors: list[str]) -> Any:
    """Reports keys that a node does not have, with the nearest that it has, and leaves them out."""
    if key == "loader" and isinstance(raw, Mapping):
        tp = schema.MpDeviceLoader if raw.get("name") == "mp_device_loader" else schema.PlainLoader
    if not (is_dataclass(tp) and isinstance(raw, Mapping)):
        return raw
    known = [f.name for f in fields(tp)]
    for name in raw:
        if name not in known:
            errors.append(f"{key}.{name}: {cross.hint(str(name)) or unknown(f'key of {key}', str(name), known)}")
    return {name: value for name, value in raw.items() if name in known}


def _components(raw: Mapping[str, Any], plugins: tuple[str, ...], errors: list[str], directory: Path) -> dict[str, Any]:
    """The components that the config names; None for one that cannot be found."""
    values: dict[str, Any] = {kind: {} for kind in components.MAPPINGS}
    for kind in _COMPONENTS:
        if kind not in raw:
            errors.append(f"{kind}: is missing; choose one with {kind}=<choice>")
            continue
        values[kind], problems = components.resolve(kind, kind, raw[kind], plugins, directory)
        errors += problems
    for kind in components.MAPPINGS:
        for name, node in (raw.get(kind) or {}).items():
            values[kind][name], problems = components.resolve(kind, f"{kind}.{name}", node, plugins, directory)
            errors += problems
    return values


def _data_problems(config: schema.Config, host: Host) -> list[str]:
    """What the size and shape of the data rule out, where they can be known without importing torch."""
    data = config.data
    if data.attribute is None or source.imports(data.module) & _SLOW_IMPORTS:
        return []
    cls = getattr(importlib.import_module(data.module), data.attribute, None)
    if not (isinstance(cls, type) and hasattr(cls, "lengths")):
        return []
    try:
        described: Any = cls(**data.args)
        return cross.data(config, host, described.lengths(), described.spec.input_shape, data.args)
    except ValueError as error:
        return [f"data: {error}"]
