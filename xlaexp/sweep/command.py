"""A multirun: every job is checked before the first one starts."""

import os
from importlib.util import find_spec
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
from xlaexp.sweep import results
from xlaexp.sweep.collect import collect
from xlaexp.sweep.ledger import mode_of

_OWN_LAUNCHERS = "hydra_plugins.xlaexp_launcher."
_OPTUNA = "hydra_plugins.xlaexp_optuna."


def sweep(app: Hydra, name: str, overrides: list[str], task: TaskFunction, isolated: TaskFunction, host: Host) -> None:
    """Checks every job of a multirun, then hands over to Hydra's sweeper.

    Args:
        app: composes.
        name: the primary config.
        overrides: from the command line.
        task: what a job runs.
        isolated: the same in a process of its own, for launchers whose processes run several jobs.
        host: the machine that is to run them.

    Raises:
        ConfigError: with every problem of every job; nothing has been started or written.
        Exception: what the sweeper raises for a job that failed, after all have ended.
    """
    frame = compose(app, name, overrides, RunMode.MULTIRUN, host)
    engine = not str(frame.hydra.launcher.get("_target_", "")).startswith(_OWN_LAUNCHERS)
    if engine:
        _fix_directory(frame)
    sweeper_class = str(frame.hydra.sweeper.get("_target_", ""))
    if sweeper_class.endswith(f".{BasicSweeper.__name__}"):
        _check_jobs(app, name, frame, _jobs(app, frame), host)
    elif sweeper_class.startswith(_OPTUNA):
        _check_jobs(app, name, frame, _trials(app, frame), host)
    callbacks = Callbacks(frame)
    callbacks.on_multirun_start(config=frame, config_name=name)
    sweeper = Plugins.instance().instantiate_sweeper(
        config=frame,
        hydra_context=HydraContext(config_loader=app.config_loader, callbacks=callbacks),
        task_function=isolated if engine else task,
    )
    try:
        sweeper.sweep(arguments=list(frame.hydra.overrides.task))
    finally:
        # Ours keeps processes and its directory from one batch of jobs to the next; Hydra has no word for the end.
        if close := getattr(getattr(sweeper, "launcher", None), "close", None):
            close()
        if engine:
            _report(frame)
    callbacks.on_multirun_end(config=frame, config_name=name)


def _fix_directory(frame: DictConfig) -> None:
    """Resolves the sweep's directory once, here: workers compose again, elsewhere and later."""
    directory = os.path.abspath(str(frame.hydra.sweep.dir))
    quoted = directory.replace("\\", "\\\\").replace("'", "\\'")
    with read_write(frame.hydra), open_dict(frame.hydra):
        frame.hydra.sweep.dir = directory
        frame.hydra.overrides.hydra.append(f"hydra.sweep.dir='{quoted}'")


def _report(frame: DictConfig) -> None:
    """What our own launcher leaves and shows at the end of a sweep, from what the jobs have left."""
    directory = Path(str(frame.hydra.sweep.dir))
    if directory.is_dir():
        mode = mode_of(frame)
        ledger = collect(directory)
        results.write(ledger, mode)
        results.show(ledger, mode)


def _jobs(app: Hydra, frame: DictConfig) -> list[list[str]]:
    """The jobs that Hydra's own sweeper will run."""
    parser = OverridesParser.create(config_loader=app.config_loader)
    params = [f"{key}={value}" for key, value in (frame.hydra.sweeper.params or {}).items()]
    parsed = parser.parse_overrides([*params, *frame.hydra.overrides.task])
    return BasicSweeper.split_arguments(parsed, None)[0]


def _trials(app: Hydra, frame: DictConfig) -> list[list[str]]:
    """Trials like those that an Optuna study will ask for."""
    if find_spec("optuna") is None:
        raise ConfigError(["hydra/sweeper=optuna: Optuna is not installed; pip install 'xlaexp[optuna]'"])
    from xlaexp.sweep.search import space_of

    return list(space_of(HydraContext(app.config_loader, Callbacks(frame)), frame).examples())


def _check_jobs(app: Hydra, name: str, frame: DictConfig, jobs: list[list[str]], host: Host) -> None:
    problems: list[str] = []
    for number, overrides in enumerate(jobs):
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
