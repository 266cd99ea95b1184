"""Composes a config with Hydra, and where that fails finds every override that is at fault."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.hydra import Hydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, read_write
from omegaconf.errors import OmegaConfBaseException

from xlaexp.config import catalog, cross, engines
from xlaexp.config.check import check
from xlaexp.config.errors import ConfigError
from xlaexp.config.schema import Config
from xlaexp.host import Host
from xlaexp.registry import REGISTRIES, unknown

_FAILURES = (HydraException, OmegaConfBaseException)


def compose(hydra: Hydra, name: str | None, overrides: Sequence[str], mode: RunMode, host: Host) -> DictConfig:
    """Composes a config and checks it.

    Args:
        hydra: holds the search path of the config files.
        name: the primary config.
        overrides: from the command line.
        mode: whether this is one run or the frame of a multirun; the latter's jobs are to be checked one by one.
        host: the machine that is to run it.

    Raises:
        ConfigError: with every problem of the overrides and of what they compose to.
    """
    problems: list[str] = []
    cfg: DictConfig | None
    try:
        cfg = _compose(hydra, name, overrides, mode)
    except _FAILURES as error:
        cfg, problems = _diagnose(hydra, name, overrides, mode)
        problems = problems or [_first_line(error)]
    if mode is RunMode.RUN and cfg is not None:
        try:
            check_composed(cfg, host)
        except ConfigError as error:
            problems += error.problems
    if problems or cfg is None:
        raise ConfigError(problems)
    return cfg


def check_composed(cfg: DictConfig, host: Host, job: str = "") -> Config:
    """Checks a composed config, its ``hydra`` node included or not.

    Args:
        cfg: the composed config.
        host: the machine that is to run it.
        job: prefix for messages, where the config is one of several.

    Raises:
        ConfigError: with every problem that was found.
    """
    if "hydra" in cfg:
        if OmegaConf.is_missing(cfg.hydra.runtime, "output_dir"):
            # Hydra sets it when it makes the directory, which is not before the config is known to be right.
            with read_write(cfg.hydra.runtime):
                cfg.hydra.runtime.output_dir = os.path.abspath(str(cfg.hydra.run.dir))
        HydraConfig.instance().set_config(cfg)  # so that ${hydra:...} resolves
    # With hydra.job.chdir, or on another machine, a job's working directory is not the one that the user has given
    # paths in.
    directory = Path(str(HydraConfig.get().runtime.cwd)) if HydraConfig.initialized() else Path.cwd()
    own = OmegaConf.masked_copy(cfg, [str(key) for key in cfg if key != "hydra"])
    problems: list[str] = []
    missing: list[str] = []
    try:
        missing = sorted(OmegaConf.missing_keys(own))
        problems += [f"{key}: is mandatory and has no value; give {key}=..." for key in missing]
        config = check(plain_data(own), host, directory)
        if not missing:
            return config
    except OmegaConfBaseException as error:
        problems.append(f"{getattr(error, 'full_key', '') or 'config'}: {_first_line(error)}")
    except ConfigError as error:
        # A missing value also fails the check of its type, which adds nothing.
        problems += [p for p in error.problems if not p.startswith(tuple(f"{key}:" for key in missing))]
    raise ConfigError([job + problem for problem in problems])


def plain_data(cfg: DictConfig) -> dict[str, Any]:
    """A config as plain containers, with interpolations resolved."""
    plain = OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def _compose(hydra: Hydra, name: str | None, overrides: Sequence[str], mode: RunMode) -> DictConfig:
    return hydra.compose_config(
        config_name=name, overrides=list(overrides), run_mode=mode, with_log_configuration=False
    )


def _diagnose(
    hydra: Hydra, name: str | None, overrides: Sequence[str], mode: RunMode
) -> tuple[DictConfig | None, list[str]]:
    """Composes with more and more overrides; each that makes it fail is explained and left out."""
    try:
        cfg = _compose(hydra, name, [], mode)
    except _FAILURES:
        return None, []
    # Choices of groups first: they decide which keys there are.
    ordered = sorted(overrides, key=lambda o: not _is_group(hydra, o))
    good: list[str] = []
    problems = []
    for override in ordered:
        try:
            cfg = _compose(hydra, name, [*good, override], mode)
            good.append(override)
        except _FAILURES as error:
            problems.append(_explain(hydra, override, cfg, error))
    return cfg, problems


def _is_group(hydra: Hydra, override: str) -> bool:
    return _group_exists(hydra, override.partition("=")[0].lstrip("+~").partition("@")[0])


def _group_exists(hydra: Hydra, group: str) -> bool:
    loader = hydra.config_loader
    assert isinstance(loader, ConfigLoaderImpl)
    return bool(loader.repository.group_exists(group))


def _explain(hydra: Hydra, override: str, cfg: DictConfig, error: Exception) -> str:
    """One sentence for an override that Hydra refused."""
    try:
        parsed = OverridesParser.create(config_loader=hydra.config_loader).parse_override(override)
    except HydraException as parse_error:
        reason = _first_line(parse_error)
        return f"{override}: is no override ({reason}); write key=value, with quotes around special characters"
    key = parsed.key_or_group
    if parsed.is_sweep_override() and key.startswith("hydra"):
        return f"{override}: what is Hydra's own cannot be swept; give one value"
    loader = hydra.config_loader
    if _group_exists(hydra, key):
        options = loader.get_group_options(key)
        value = parsed.value()
        for choice in value if isinstance(value, list) else [value]:
            if not isinstance(choice, str) or choice in options:
                continue
            if key == engines.GROUP:
                return f"{override}: {engines.unknown_launcher(choice, options)}"
            known = {*options, *(catalog.names(key) if key in REGISTRIES else ())} - {"torchmetrics", "torchvision"}
            if choice not in known:
                return f"{override}: {catalog.missing(key, choice) or unknown(key, choice, known)}"
        return f"{override}: {_first_line(error)}"
    if OmegaConf.select(cfg, key, throw_on_missing=False) is None and not _has(cfg, key):
        launcher = str(OmegaConf.select(cfg, "hydra.runtime.choices")[engines.GROUP])
        if advice := cross.hint(key) or engines.hint(key, launcher):
            return f"{override}: {advice}"
        plain = OmegaConf.to_container(cfg, resolve=False)
        text = unknown("key", key, [k for k in _keys(plain) if not k.startswith("hydra.")], most=0)
        return f"{override}: {text.partition(' Known:')[0]} A key that the config has not is added with +{override}"
    return f"{override}: {_first_line(error)}"


def _has(cfg: DictConfig, key: str) -> bool:
    parent, _, leaf = key.rpartition(".")
    node = OmegaConf.select(cfg, parent) if parent else cfg
    return isinstance(node, DictConfig) and leaf in node


def _keys(node: Any, prefix: str = "") -> Iterator[str]:
    """Every key of plain containers, dotted."""
    if isinstance(node, Mapping):
        for key, value in node.items():
            yield f"{prefix}{key}"
            yield from _keys(value, f"{prefix}{key}.")


def _first_line(error: BaseException) -> str:
    """What an error says first; the reason as well where that only says that there is one."""
    lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return " ".join(lines[:2] if lines[0].startswith("Could not override") else lines[:1]).strip()
