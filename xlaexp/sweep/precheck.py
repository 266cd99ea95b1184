"""Composes and checks the jobs of a multirun before the first one starts."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from hydra._internal.callbacks import Callbacks
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra._internal.hydra import Hydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException

from xlaexp.config.compose import check_composed, compose
from xlaexp.config.errors import ConfigError
from xlaexp.config.loader import as_given
from xlaexp.host import Host

_OPTUNA = "hydra_plugins.xlaexp_optuna."
_NAMED = 3  # jobs that a message names


def check_jobs(app: Hydra, name: str, frame: DictConfig, host: Host) -> None:
    """Checks the jobs that Hydra's own sweeper will run, or samples of those that Optuna may ask for.

    What other sweepers do is not known; their jobs are checked when they start.

    Args:
        app: composes.
        name: the primary config.
        frame: the config of the sweep.
        host: the machine that is to run the jobs.

    Raises:
        ConfigError: with every problem of every job.
    """
    sweeper = str(frame.hydra.sweeper.get("_target_", ""))
    advice: dict[str, str] = {}
    if sweeper.endswith(f".{BasicSweeper.__name__}"):
        jobs = _jobs(app, frame)
    elif sweeper.startswith(_OPTUNA):
        jobs, advice = _trials(app, frame)
    else:
        return
    found: dict[str, list[int]] = {}
    for number, overrides in enumerate(jobs):
        try:
            _check_job(app, name, frame, overrides, number, host)
        except ConfigError as error:
            for problem in error.problems:
                found.setdefault(problem, []).append(number)
    if found:
        kind = "trial" if sweeper.startswith(_OPTUNA) else "job"
        hints = {problem: advice.get(problem.partition(":")[0], "") for problem in found}
        raise ConfigError([_where(kind, numbers, jobs) + p + hints[p] for p, numbers in found.items()])


def _where(kind: str, numbers: Sequence[int], jobs: Sequence[Sequence[str]]) -> str:
    """Which jobs have a problem; nothing where all of them have it."""
    if len(numbers) == len(jobs):
        return ""
    first = " ".join(jobs[numbers[0]])
    if kind == "trial":  # these are samples: their numbers mean nothing
        return f"a trial such as {first}: "
    if len(numbers) == 1:
        return f"job {numbers[0]} ({first}): "
    left = len(numbers) - _NAMED
    named = ", ".join(map(str, numbers[:_NAMED])) + (f" and {left} more" if left > 0 else "")
    return f"jobs {named} (first: {first}): "


def _jobs(app: Hydra, frame: DictConfig) -> list[list[str]]:
    """The jobs that Hydra's own sweeper will run."""
    parser = OverridesParser.create(config_loader=app.config_loader)
    params = [f"{key}={value}" for key, value in (frame.hydra.sweeper.params or {}).items()]
    parsed = parser.parse_overrides([*params, *as_given(frame.hydra.overrides.task)])
    return BasicSweeper.split_arguments(parsed, None)[0]


def _trials(app: Hydra, frame: DictConfig) -> tuple[list[list[str]], dict[str, str]]:
    """Trials like those that an Optuna study will ask for, and advice for keys that turn out to be wrong."""
    if find_spec("optuna") is None:
        raise ConfigError(["hydra/sweeper=optuna: Optuna is not installed; pip install 'xlaexp[optuna]'"])
    from xlaexp.sweep.plan import plan

    space = plan(HydraContext(app.config_loader, Callbacks(frame)), frame).space
    return list(space.examples()), space.advice()


def _check_job(app: Hydra, name: str, frame: DictConfig, overrides: list[str], number: int, host: Host) -> None:
    try:
        cfg = app.config_loader.load_sweep_config(frame, list(overrides))
    except (HydraException, OmegaConfBaseException):
        # Composed again, to say which override is at fault.
        own = [o for o in as_given(frame.hydra.overrides.hydra) if not o.startswith("hydra.mode")]
        cfg = compose(app, name, [*own, *overrides], RunMode.MULTIRUN, host)
    with read_write(cfg.hydra), open_dict(cfg.hydra):
        cfg.hydra.job.num = cfg.hydra.job.id = number
        cfg.hydra.runtime.output_dir = str(Path(str(cfg.hydra.sweep.dir)).absolute() / str(number))
    check_composed(cfg, host)
