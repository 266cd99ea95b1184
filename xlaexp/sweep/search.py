"""An Optuna study as a sweep: asks for trials, lets a launcher run them, and tells how they went."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import optuna
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext
from omegaconf import DictConfig, OmegaConf
from optuna.trial import FrozenTrial, TrialState

from xlaexp.config.errors import ConfigError
from xlaexp.pruning import make
from xlaexp.result import Result
from xlaexp.sweep.space import Space, parse
from xlaexp.sweep.trial import storage_url

log = logging.getLogger("xlaexp")

BEST = "optimization_results.yaml"
_AGAIN = "asked again for trial"
_DIRECTIONS: Mapping[str, Literal["maximize", "minimize"]] = {"max": "maximize", "min": "minimize"}


def space_of(context: HydraContext, config: DictConfig) -> Space:
    """The search space of ``hydra.sweeper.params`` and the command line, which wins.

    Args:
        context: Hydra's.
        config: the frame of the sweep.

    Raises:
        ConfigError: an override cannot be searched, or there is nothing to search.
    """
    params = [f"{key}={value}" for key, value in config.hydra.sweeper.params.items()]
    parser = OverridesParser.create(config_loader=context.config_loader)
    space = parse(parser.parse_overrides([*params, *config.hydra.overrides.task]))
    if not space.parameters:
        raise ConfigError(
            ["hydra/sweeper=optuna: nothing to search; give a key a space: optimizer.lr='tag(log,interval(1e-4,1e-1))'"]
        )
    return space


class Search:
    """A study in the directory of a sweep.

    Args:
        context: Hydra's.
        config: the frame of the sweep.

    Raises:
        ConfigError: an option is wrong.
    """

    def __init__(self, context: HydraContext, config: DictConfig) -> None:
        options = config.hydra.sweeper
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._space = space_of(context, config)
        modes = config.objective.mode
        self._modes = [modes] if isinstance(modes, str) else list(modes)
        self._directory = Path(str(config.hydra.sweep.dir)).absolute()
        self._n_jobs, self._n_trials = int(options.n_jobs), int(options.n_trials)
        if self._n_jobs < 1 or self._n_trials < 1:
            raise ConfigError(["hydra.sweeper: n_trials and n_jobs have to be 1 or more"])
        pruner = make(OmegaConf.to_container(options.pruner, resolve=True))
        if len(self._modes) > 1 and not isinstance(pruner, optuna.pruners.NopPruner):
            raise ConfigError(["hydra/sweeper/pruner: a study with several objectives cannot prune; use pruner=none"])
        self._directory.mkdir(parents=True, exist_ok=True)
        self._study = optuna.create_study(
            study_name=str(options.study_name),
            storage=storage_url(str(options.storage), config.hydra.runtime.cwd),
            directions=[_DIRECTIONS[mode] for mode in self._modes],
            pruner=pruner,
            load_if_exists=True,
        )
        sampler = OmegaConf.to_container(options.sampler, resolve=True)
        assert isinstance(sampler, dict)
        self._study.sampler = self._sampler({str(key): value for key, value in sampler.items()})

    def run(self, launcher: Launcher) -> Exception | None:
        """Runs what is missing of the study.

        Args:
            launcher: runs the jobs.

        Returns:
            The first failure of a job, after all others have ended.
        """
        left = self._n_trials - self._recover()
        failure: Exception | None = None
        while left > 0:
            batch = [self._ask() for _ in range(min(self._n_jobs, left))]
            left -= len(batch)
            jobs = [[*self._space.overrides(trial.params), f"hydra.sweeper.trial={trial.number}"] for trial in batch]
            returns = launcher.launch(jobs, initial_job_idx=batch[0].number)
            for trial, ended in zip(batch, returns, strict=True):
                failure = self._tell(trial, ended) or failure
        self._report()
        return failure

    def _sampler(self, description: dict[str, Any]) -> optuna.samplers.BaseSampler:
        if str(description.get("_target_", "")).endswith(".GridSampler"):
            description["search_space"] = grid = self._space.grid()
            size = 1
            for values in grid.values():
                size *= len(values)
            self._n_trials = min(self._n_trials, size)
        if description.get("seed") is not None:
            # With its first seed a sampler would propose the first trials once more when a study is resumed.
            description["seed"] += len(self._study.get_trials(deepcopy=False))
        sampler: optuna.samplers.BaseSampler = make(description)
        return sampler

    def _recover(self) -> int:
        """Asks again for trials that failed, or ran when the sweep was killed; counts those that need not run."""
        finished = 0
        for trial in self._study.get_trials(deepcopy=False):
            if trial.state == TrialState.RUNNING:
                self._study.tell(trial.number, state=TrialState.FAIL)
            elif trial.state in (TrialState.COMPLETE, TrialState.PRUNED):
                finished += 1
        trials = self._study.get_trials(deepcopy=False)
        again = {trial.user_attrs.get(_AGAIN) for trial in trials}
        for trial in trials:
            if trial.state == TrialState.FAIL and trial.params and trial.number not in again:
                self._study.enqueue_trial(trial.params, user_attrs={_AGAIN: trial.number})
        if finished:
            log.info("%d of %d trials are done already", finished, self._n_trials)
        return finished

    def _ask(self) -> optuna.Trial:
        return self._study.ask({parameter.key: parameter.distribution for parameter in self._space.parameters})

    def _tell(self, trial: optuna.Trial, ended: JobReturn) -> Exception | None:
        found: Any = ended._return_value  # the property also prints
        if isinstance(found, Exception):
            _tell(self._study, trial, TrialState.FAIL, None)
            return found
        state = TrialState.COMPLETE
        values = [float(value) for value in (found if isinstance(found, Sequence) else [found])]
        if any(value != value for value in values):
            log.warning("trial %d: its objective is not a number, so that it counts as failed", trial.number)
            state = TrialState.FAIL
        elif ended.hydra_cfg and Result.read(Path(str(ended.hydra_cfg.hydra.runtime.output_dir))).pruned:
            state = TrialState.PRUNED
        _tell(self._study, trial, state, values if state == TrialState.COMPLETE else None)
        return None

    def _report(self) -> None:
        """Says what was best, and writes it down."""
        complete = self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        if not complete:
            return
        if len(self._modes) == 1:
            best = self._study.best_trial
            log.info("best: %.6g with %s", best.value, " ".join(self._written(best)))
            content: Mapping[str, Any] = {"name": "optuna", "best_params": best.params, "best_value": best.value}
        else:
            front = self._study.best_trials
            log.info("best: %d trials, none of which another one beats in every objective", len(front))
            for trial in front:
                values = ", ".join(f"{value:.6g}" for value in trial.values)
                log.info("  %s with %s", values, " ".join(self._written(trial)))
            solutions = [{"params": trial.params, "values": list(trial.values)} for trial in front]
            content = {"name": "optuna", "solutions": solutions}
        OmegaConf.save(OmegaConf.create(dict(content)), self._directory / BEST)

    def _written(self, trial: FrozenTrial) -> list[str]:
        return [p.override(trial.params[p.key]) for p in self._space.parameters if p.key in trial.params]


def _tell(study: optuna.Study, trial: optuna.Trial, state: TrialState, values: Sequence[float] | None) -> None:
    """Tells a study of a trial."""
    try:
        study.tell(trial, values, state)
    except RuntimeError as error:
        # A sampler that has proposed everything (GridSampler) stops the study, which is for Study.optimize only. The
        # trial has been stored all the same.
        if "stop" not in str(error):
            raise
