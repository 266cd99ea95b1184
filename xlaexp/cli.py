"""``python -m xlaexp``: overrides in, an exit code out.

A run goes through :func:`main` -> :func:`xlaexp.config.compose.compose` -> :func:`job` -> launch. Everything
else that Hydra's command line offers (``--help``, ``--cfg``, ``--info``, completion) is Hydra's own.
"""

import argparse
import errno
import logging
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import hydra
from hydra._internal.callbacks import Callbacks
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path, get_args_parser
from hydra.core.config_search_path import ConfigSearchPath, SearchPathQuery
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import run_job
from hydra.errors import HydraException
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig, read_write

from xlaexp import __version__, environment, stopping
from xlaexp.config import choices
from xlaexp.config.compose import check_composed, compose
from xlaexp.config.errors import ConfigError
from xlaexp.config.loader import SweepConfigLoader
from xlaexp.config.resolvers import register_resolvers
from xlaexp.failure import RunFailedError
from xlaexp.host import this_host
from xlaexp.stopping import StoppedError
from xlaexp.summary import show
from xlaexp.sweep import isolated
from xlaexp.sweep.command import sweep
from xlaexp.sweep.launcher import JobFailedError
from xlaexp.sweep.trial import trial_of

log = logging.getLogger("xlaexp")

BAD_CONFIG = 2
RUN_FAILED = 1
_TAKEN = (
    "hydra.run.dir: {} already holds a run; go on with it by resume=auto, use another one, or leave hydra.run.dir out"
)


def main() -> None:
    """Entry point of ``python -m xlaexp`` and of the console script."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # the console script, unlike python -m, leaves a user's own modules out
    register_resolvers()
    choices.register()
    arguments = get_args_parser().parse_args()
    shown = arguments.help or arguments.hydra_help or arguments.cfg or arguments.info or arguments.shell_completion
    if shown or arguments.experimental_rerun:
        hydra.main(version_base="1.3", config_path=str(conf_directory()), config_name="config")(job)()
        return
    hydra.version.setbase("1.3")
    try:
        run(arguments)
    except ConfigError as error:
        stop(str(error), BAD_CONFIG)
    except HydraException as error:
        stop(f"The config has an error:\n  - {error}", BAD_CONFIG)
    except KeyboardInterrupt:
        stop("Interrupted.", 128 + (stopping.requested() or signal.SIGINT))
    finally:
        GlobalHydra.instance().clear()


def stop(message: str, code: int) -> NoReturn:
    """Says why, and exits."""
    print(message, file=sys.stderr)
    sys.exit(code)


def conf_directory() -> Path:
    """The config files: inside an installed package, or at the top of the repository."""
    package = Path(__file__).parent
    return package / "conf" if (package / "conf").is_dir() else package.parent / "conf"


def search_path(arguments: argparse.Namespace) -> ConfigSearchPath:
    """Where configs are looked up: ``--config-dir`` first, then ours or what ``--config-path`` names.

    Raises:
        ConfigError: a directory is not there.
    """
    own = os.path.abspath(arguments.config_path) if arguments.config_path else str(conf_directory())
    for flag, directory in (("--config-path", own), ("--config-dir", arguments.config_dir)):
        if directory and not os.path.isdir(directory):
            raise ConfigError([f"{flag}: there is no directory {directory}"])
    path = create_config_search_path(own)
    if arguments.config_dir:
        additional = f"file://{os.path.abspath(arguments.config_dir)}"
        path.prepend(provider="command-line", path=additional, anchor=SearchPathQuery(provider="main"))
    return path


def create_app(path: ConfigSearchPath) -> Hydra:
    """Hydra itself, with a loader that composes each job of a sweep once."""
    app = Hydra(task_name="xlaexp", config_loader=SweepConfigLoader(config_search_path=path))
    GlobalHydra.instance().initialize(app)
    return app


def run(arguments: argparse.Namespace) -> None:
    """Composes, checks and runs one job or a multirun."""
    app = create_app(search_path(arguments))
    name = arguments.config_name or "config"
    overrides = list(arguments.overrides)
    if arguments.multirun or "hydra.mode=MULTIRUN" in overrides:
        try:
            sweep(app, name, overrides, job, job_in_child, this_host())
        except Exception as error:
            _fail(error)
        return
    cfg = compose(app, name, overrides, RunMode.RUN, this_host())
    with read_write(cfg.hydra):
        cfg.hydra.mode = RunMode.RUN
    directory = Path(str(cfg.hydra.run.dir))
    if (directory / environment.FILE).exists() and cfg.resume != "auto":
        raise ConfigError([_TAKEN.format(directory)])
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if not os.access(directory, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise ConfigError([f"hydra.run.dir: {directory} cannot be written: {error.strerror}"]) from None
    callbacks = Callbacks(cfg)
    callbacks.on_run_start(config=cfg, config_name=name)
    result = run_job(
        task_function=job,
        config=cfg,
        job_dir_key="hydra.run.dir",
        job_subdir_key=None,
        hydra_context=HydraContext(config_loader=app.config_loader, callbacks=callbacks),
    )
    callbacks.on_run_end(config=cfg, config_name=name, job_return=result)
    if isinstance(result._return_value, Exception):
        _fail(result._return_value)


def job(cfg: DictConfig) -> float | list[float]:
    """One run, in the output directory that Hydra has made.

    Returns:
        The objective, for a sweeper; a list where there are several.
    """
    hydra_node: Any = HydraConfig.get()
    config = replace(check_composed(cfg, this_host()), trial=trial_of(hydra_node))
    directory = Path(hydra_node.runtime.output_dir)
    try:
        environment.claim(directory, __version__, again=config.resume == "auto")
    except FileExistsError:
        raise ConfigError([_TAKEN.format(directory)]) from None
    if config.platform == "CPU" and this_host().pjrt_device is None:
        log.info("No TPU found and PJRT_DEVICE is not set: running on XLA:CPU.")
    # torch_xla would choose by itself when it is imported, and say so in its own words.
    os.environ["PJRT_DEVICE"] = os.environ.get("PJRT_DEVICE") or config.platform
    from xlaexp.launch import launch  # torch is imported from here on

    result = launch(config, directory)
    show(result, directory)
    return result.returned


def job_in_child(cfg: DictConfig) -> float | list[float]:
    """:func:`job` in a process of its own, for engines whose workers run one job after the other.

    Returns:
        What :func:`job` returns.
    """
    return isolated.run(job, cfg)


def _fail(error: Exception) -> NoReturn:
    if isinstance(error, StoppedError):
        stop(f"The run was {error}. The same command with resume=auto and its hydra.run.dir goes on.", error.code)
    if isinstance(error, RunFailedError | JobFailedError):
        stop(str(error), RUN_FAILED)
    raise error
