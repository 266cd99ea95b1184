"""Every check of a composed config: types, components, and what contradicts what. All errors at once."""

import importlib
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from pydantic import TypeAdapter, ValidationError

from xlaexp import source
from xlaexp.config import arguments, components, cross, schema
from xlaexp.config.errors import ConfigError
from xlaexp.host import Host
from xlaexp.registry import unknown

_SECTIONS: Mapping[str, Any] = {
    "device": schema.Device,
    "loader": schema.AnyLoader,
    "train": schema.Train,
    "objective": schema.Objective,
}
_SCALARS: Mapping[str, Any] = {"seed": schema.Count, "strategy": str, "plugins": list[str]}
_COMPONENTS = ("model", "data", "optimizer", "criterion", "scheduler")


def check(raw: Mapping[str, Any], host: Host) -> schema.Config:
    """Turns a composed, resolved config into a typed one.

    Args:
        raw: the config as plain containers.
        host: the machine that is to run it.

    Raises:
        ConfigError: with every problem that was found.
    """
    errors: list[str] = []
    values: dict[str, Any] = {}
    for key, tp in {**_SECTIONS, **_SCALARS}.items():
        if key not in raw:
            errors.append(f"{key}: is missing; the config needs it")
            continue
        try:
            values[key] = TypeAdapter(tp).validate_python(_known(key, tp, raw[key], errors))
        except ValidationError as error:
            prefix = key
            errors += [f"{m}; override it as {m.split(':')[0]}=..." for m in arguments.messages(error, prefix)]
    plugins = tuple(values.get("plugins", ()))
    for plugin in plugins:
        if source.module_file(plugin) is None:
            errors.append(f"plugins: no module {plugin!r} can be imported; start from its directory or install it")
    for kind in _COMPONENTS:
        if kind not in raw:
            errors.append(f"{kind}: is missing; choose one with {kind}=<choice>")
            continue
        values[kind], problems = components.resolve(kind, kind, raw[kind], plugins)
        errors += problems
    values["tracking"] = {}
    for name, node in (raw.get("tracking") or {}).items():
        values["tracking"][name], problems = components.resolve("tracking", f"tracking.{name}", node, plugins)
        errors += problems
    known = {*_SECTIONS, *_SCALARS, *_COMPONENTS, "tracking"}
    errors += [f"{key}: {unknown('config key', str(key), known)}" for key in raw if key not in known]
    errors += cross.problems(values, host)
    if errors:
        raise ConfigError(errors)
    values["strategy"] = cross.strategy(values["strategy"], values["device"], values["loader"])
    config = schema.Config(**{**values, "plugins": plugins, "platform": host.platform, "raw": raw})
    if problems := _data_problems(config):
        raise ConfigError(problems)
    return config


def _known(key: str, tp: Any, raw: Any, errors: list[str]) -> Any:
    """Reports keys that a section does not have, with the nearest that it has, and leaves them out."""
    if not isinstance(raw, Mapping) or key not in _SECTIONS:
        return raw
    cls = tp
    if key == "loader":
        cls = schema.MpDeviceLoader if raw.get("name") == "mp_device_loader" else schema.PlainLoader
    known = [f.name for f in fields(cls)]
    for name in raw:
        if name not in known:
            errors.append(f"{key}.{name}: {cross.hint(f'{key}.{name}', raw[name]) or unknown('key', str(name), known)}")
    return {name: value for name, value in raw.items() if name in known}


def _data_problems(config: schema.Config) -> list[str]:
    """What the size and shape of the data rule out, where they can be known without importing torch."""
    data = config.data
    tree = source.parse(data.module)
    if tree is None or source.imports(tree) & {"torch", "torchvision", "torch_xla"}:
        return []
    module = importlib.import_module(data.module)
    cls = next((c for n, c in vars(module).items() if getattr(c, "__module__", "") == data.module and _is(c, data, n)), None)
    if cls is None or not hasattr(cls, "lengths"):
        return []
    try:
        described = cls(**data.args)
    except ValueError as error:
        return [f"data: {error}"]
    return cross.data_problems(config, described.lengths(), described.spec)


def _is(candidate: Any, data: schema.Component, attribute: str) -> bool:
    from xlaexp.config import catalog  # kept local: only this look-up needs it

    entry = catalog.find("data", data.name)
    return attribute == (entry.attribute if entry else data.attribute) and isinstance(candidate, type)
