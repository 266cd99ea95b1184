"""An Optuna study as a sweep: asks for trials, lets a launcher run them, and tells how they went."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import optuna
from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext
from omegaconf import DictConfig, OmegaConf
from optuna.trial import FrozenTrial, TrialState

from xlaexp.config.errors import ConfigError
from xlaexp.pruning import make
from xlaexp.result import Result
from xlaexp.sweep.plan import plan
from xlaexp.sweep.trial import storage_url

log = logging.getLogger("xlaexp")

BEST = "optimization_results.yaml"
_AGAIN = "asked again for trial"
_DIRECTIONS: Mapping[str, Literal["maximize", "minimize"]] = {"max": "maximize", "min": "minimize"}


class Search:
    """A study in the directory of a sweep.

    Args:
        context: Hydra's.
        config: the frame of the sweep.

    Raises:
        ConfigError: an option is wrong.
    """

    def __init__(self, context: HydraContext, config: DictConfig) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._plan = found = plan(context, config)
        self._directory = Path(str(config.hydra.sweep.dir)).absolute()
        self._directory.mkdir(parents=True, exist_ok=True)
        url = storage_url(str(config.hydra.sweeper.storage), config.hydra.runtime.cwd)
        try:
            self._study = optuna.create_study(
                study_name=str(config.hydra.sweeper.study_name),
                storage=url,
                directions=[_DIRECTIONS[mode] for mode in found.modes],
                pruner=found.pruner,
                load_if_exists=True,
            )
        except Exception as error:  # the storage's own, of whatever database
            raise ConfigError([f"hydra.sweeper.storage={url}: {type(error).__name__}: {error}"]) from None
        self._refuse_another()
        sampler = dict(found.sampler)
        if sampler.get("seed") is not None:
            # With its first seed a sampler would propose the first trials once more when a study is resumed.
            sampler["seed"] += len(self._study.get_trials(deepcopy=False))
        self._study.sampler = make(sampler)

    def run(self, launcher: Launcher) -> Exception | None:
        """Runs what is missing of the study.

        Args:
            launcher: runs the jobs.

        Returns:
            The first failure of a job, after all others have ended.
        """
        left = self._plan.n_trials - self._recover()
        failure: Exception | None = None
        while left > 0:
            batch = [self._ask() for _ in range(min(self._plan.n_jobs, left))]
            left -= len(batch)
            jobs = [
                [*self._plan.space.overrides(trial.params), f"hydra.sweeper.trial={trial.number}"] for trial in batch
            ]
            returns = launcher.launch(jobs, initial_job_idx=batch[0].number)
            for trial, ended in zip(batch, returns, strict=True):
                failure = self._tell(trial, ended) or failure
        self._report()
        return failure

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
            log.info("%d of %d trials are done already", finished, self._plan.n_trials)
        return finished

    def _refuse_another(self) -> None:
        """Raises ConfigError where the storage has a study of other objectives or of another space."""
        other = "there is a study of {0} already; use another hydra.sweep.dir or hydra.sweeper.study_name"
        if [direction.name.lower() for direction in self._study.directions] != [
            _DIRECTIONS[mode] for mode in self._plan.modes
        ]:
            raise ConfigError(["objective.mode: " + other.format("other objectives")])
        wanted = {parameter.key: parameter.distribution for parameter in self._plan.space.parameters}
        for trial in self._study.get_trials(deepcopy=False)[-1:]:
            for key in trial.distributions.keys() & wanted.keys():
                try:
                    optuna.distributions.check_distribution_compatibility(trial.distributions[key], wanted[key])
                except ValueError:
                    raise ConfigError([f"{key}: " + other.format("other choices of it")]) from None

    def _ask(self) -> optuna.Trial:
        return self._study.ask({parameter.key: parameter.distribution for parameter in self._plan.space.parameters})

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
        if len(self._plan.modes) == 1:
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
        return [p.override(trial.params[p.key]) for p in self._plan.space.parameters if p.key in trial.params]


def _tell(study: optuna.Study, trial: optuna.Trial, state: TrialState, values: Sequence[float] | None) -> None:
    """Tells a study of a trial."""
    try:
        study.tell(trial, values, state)
    except RuntimeError as error:
        # A sampler that has proposed everything (GridSampler) stops the study, which is for Study.optimize only. The
        # trial has been stored all the same.
        if "stop" not in str(error):
            raise
