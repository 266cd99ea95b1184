"""A run as a trial of an Optuna study: reports what it validates, and ends early where the pruner says so."""

import importlib
import logging
from collections.abc import Mapping
from typing import Any, final

from xlaexp.callbacks import Callback, Scalars
from xlaexp.config.schema import Trial

log = logging.getLogger("xlaexp")


@final
class Pruning(Callback):
    """Reports each evaluation; its number, from 1, is what the pruner calls a step.

    Args:
        trial: the run, as the study knows it.
        metric: what is reported.
    """

    def __init__(self, trial: Trial, metric: str) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        # Here nothing is sampled; another sampler than a random one would look at all trials for it.
        sampler = optuna.samplers.RandomSampler()
        pruner = make(trial.pruner)
        study = optuna.load_study(study_name=trial.study, storage=trial.storage, sampler=sampler, pruner=pruner)
        found = next(known for known in study.get_trials(deepcopy=False) if known.number == trial.number)
        self._trial = optuna.trial.Trial(study, found._trial_id)
        # A job that is started again reports what its first attempt has reported already.
        self._reported = set(found.intermediate_values)
        self._metric = metric
        self._evaluations = 0
        self._stops = False

    @property
    def stops(self) -> bool:
        """Whether the pruner has said so after the last evaluation."""
        return self._stops

    def evaluate(self, step: int, scalars: Scalars) -> None:
        """Reports the metric, and asks the pruner."""
        self._evaluations += 1
        if self._evaluations not in self._reported:
            self._trial.report(scalars[self._metric], self._evaluations)
        self._stops = bool(self._trial.should_prune())  # NumPy's, of some pruners
        if self._stops:
            log.info("pruned after evaluation %d: %s %.6g", self._evaluations, self._metric, scalars[self._metric])


def make(description: Any) -> Any:
    """What a plain description stands for: a mapping with ``_target_`` is called, in whatever it is nested.

    Args:
        description: plain data.
    """
    if isinstance(description, Mapping):
        arguments = {key: make(value) for key, value in description.items() if key != "_target_"}
        if "_target_" not in description:
            return arguments
        module, _, name = str(description["_target_"]).rpartition(".")
        return getattr(importlib.import_module(module), name)(**arguments)
    if isinstance(description, list):
        return [make(value) for value in description]
    return description
