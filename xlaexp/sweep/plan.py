"""What an Optuna search is to do: its options, checked."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import optuna
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.types import HydraContext
from omegaconf import DictConfig, OmegaConf

from xlaexp.config.errors import ConfigError
from xlaexp.config.loader import as_given
from xlaexp.pruning import make
from xlaexp.sweep.space import Space, parse


@dataclass(frozen=True)
class Plan:
    """What a search is to do."""

    space: Space
    modes: Sequence[str]
    """For each objective whether more or less of it is better."""
    n_trials: int
    """Trials in all; for a grid no more than it has points."""
    n_jobs: int
    """Trials that are asked for at a time."""
    sampler: Mapping[str, Any]
    """``_target_`` and arguments."""
    pruner: optuna.pruners.BasePruner


def plan(context: HydraContext, config: DictConfig) -> Plan:
    """What the options of the sweeper and the command line, which wins, come to.

    Args:
        context: Hydra's.
        config: the frame of the sweep.

    Raises:
        ConfigError: an option is wrong, an override cannot be searched, or there is nothing to search.
    """
    options = config.hydra.sweeper
    params = [f"{key}={value}" for key, value in options.params.items()]
    parser = OverridesParser.create(config_loader=context.config_loader)
    space = parse(parser.parse_overrides([*params, *as_given(config.hydra.overrides.task)]))
    n_trials, n_jobs = int(options.n_trials), int(options.n_jobs)
    modes = config.objective.mode
    modes = [modes] if isinstance(modes, str) else list(modes)
    pruner = _made("pruner", OmegaConf.to_container(options.pruner, resolve=True))
    problems = []
    if not space.parameters:
        problems.append(
            "hydra/sweeper=optuna: nothing to search; give a key a space: optimizer.lr='tag(log,interval(1e-4,1e-1))'"
        )
    if n_trials < 1 or n_jobs < 1:
        problems.append("hydra.sweeper: n_trials and n_jobs have to be 1 or more")
    if len(modes) > 1 and not isinstance(pruner, optuna.pruners.NopPruner):
        problems.append("hydra/sweeper/pruner: a study with several objectives cannot prune; use pruner=none")
    if problems:
        raise ConfigError(problems)
    sampler = OmegaConf.to_container(options.sampler, resolve=True)
    assert isinstance(sampler, dict)
    if str(sampler.get("_target_", "")).endswith(".GridSampler"):
        sampler["search_space"] = grid = space.grid()
        n_trials = min(n_trials, math.prod(len(values) for values in grid.values()))
    _made("sampler", sampler)
    return Plan(space, modes, n_trials, n_jobs, {str(key): value for key, value in sampler.items()}, pruner)


def _made(what: str, description: Any) -> Any:
    try:
        return make(description)
    except Exception as error:
        problem = f"hydra.sweeper.{what}: {type(error).__name__}: {error}; there is hydra/sweeper/{what}=<choice>"
        raise ConfigError([problem]) from None
