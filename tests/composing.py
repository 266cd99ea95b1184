"""Configs for tests, composed as the command line does it."""

from pathlib import Path

from hydra._internal.utils import get_args_parser
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode

from xlaexp import cli
from xlaexp.config import choices
from xlaexp.config.compose import check_composed, compose
from xlaexp.config.resolvers import register_resolvers
from xlaexp.config.schema import Config
from xlaexp.host import Host

CPU = Host(pjrt_device=None, tpu_chips=0, libtpu=False, colab=False, cpu_num_devices=None)


def config(*overrides: str, host: Host = CPU, config_dir: Path | None = None) -> Config:
    """The checked config of some overrides.

    Raises:
        ConfigError: as the command line would print it.
    """
    register_resolvers()
    choices.register()
    arguments = get_args_parser().parse_args([*overrides] + (["--config-dir", str(config_dir)] if config_dir else []))
    app = cli.create_app(cli.search_path(arguments))
    try:
        return check_composed(compose(app, "config", overrides, RunMode.RUN, host), host)
    finally:
        GlobalHydra.instance().clear()
