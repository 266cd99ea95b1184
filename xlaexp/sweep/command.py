"""A multirun: every job is checked before the first one starts."""

from pathlib import Path

from hydra._internal.callbacks import Callbacks
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra._internal.hydra import Hydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.types import HydraContext, RunMode, TaskFunction
from omegaconf import DictConfig, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException

from xlaexp.config.compose import check_composed, compose
from xlaexp.config.errors import ConfigError
from xlaexp.host import Host


def sweep(app: Hydra, name: str, overrides: list[str], task: TaskFunction, host: Host) -> None:
    """Checks every job of a multirun, then hands over to Hydra's sweeper.

    Args:
        app: composes.
        name: the primary config.
        overrides: from the command line.
        task: what a job runs.
        host: the machine that is to run them.

    Raises:
        ConfigError: with every problem of every job; nothing has been started or written.
        Exception: what the sweeper raises for a job that failed, after all have ended.
    """
    frame = compose(app, name, overrides, RunMode.MULTIRUN, host)
    if str(frame.hydra.sweeper.get("_target_", "")).endswith(f".{BasicSweeper.__name__}"):
        _check_jobs(app, name, frame, host)
    callbacks = Callbacks(frame)
    callbacks.on_multirun_start(config=frame, config_name=name)
    sweeper = Plugins.instance().instantiate_sweeper(
        config=frame,
        hydra_context=HydraContext(config_loader=app.config_loader, callbacks=callbacks),
        task_function=task,
    )
    try:
        sweeper.sweep(arguments=list(frame.hydra.overrides.task))
    finally:
        # Ours keeps processes and its directory from one batch of jobs to the next; Hydra has no word for the end.
        if close := getattr(getattr(sweeper, "launcher", None), "close", None):
            close()
    callbacks.on_multirun_end(config=frame, config_name=name)


def _check_jobs(app: Hydra, name: str, frame: DictConfig, host: Host) -> None:
    parser = OverridesParser.create(config_loader=app.config_loader)
    params = [f"{key}={value}" for key, value in (frame.hydra.sweeper.params or {}).items()]
    parsed = parser.parse_overrides([*params, *frame.hydra.overrides.task])
    problems: list[str] = []
    for number, overrides in enumerate(BasicSweeper.split_arguments(parsed, None)[0]):
        try:
            _check_job(app, name, frame, overrides, number, host)
        except ConfigError as error:
            problems += [f"job {number} ({' '.join(overrides)}): {problem}" for problem in error.problems]
    if problems:
        raise ConfigError(problems)


def _check_job(app: Hydra, name: str, frame: DictConfig, overrides: list[str], number: int, host: Host) -> None:
    try:
        cfg = app.config_loader.load_sweep_config(frame, list(overrides))
    except (HydraException, OmegaConfBaseException):
        # Composed again, to say which override is at fault.
        own = [o for o in frame.hydra.overrides.hydra if not o.startswith("hydra.mode")]
        cfg = compose(app, name, [*own, *overrides], RunMode.MULTIRUN, host)
    with read_write(cfg.hydra), open_dict(cfg.hydra):
        cfg.hydra.job.num = cfg.hydra.job.id = number
        cfg.hydra.runtime.output_dir = str(Path(str(cfg.hydra.sweep.dir)).absolute() / str(number))
    check_composed(cfg, host)
