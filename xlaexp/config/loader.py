"""A config loader that composes each job of a sweep once, however often Hydra asks for it."""

import copy
from collections.abc import Sequence
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from omegaconf import DictConfig, ListConfig, OmegaConf


class SweepConfigLoader(ConfigLoaderImpl):
    """Remembers the jobs' configs: they are checked, validated and launched, and composing takes longest by far."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._composed: dict[tuple[str, ...], DictConfig] = {}

    def load_sweep_config(self, master_config: DictConfig, sweep_overrides: Sequence[str]) -> DictConfig:
        """See Hydra; the caller may change what it gets."""
        key = (*as_given(master_config.hydra.overrides.hydra), *sweep_overrides)
        if key not in self._composed:
            self._composed[key] = super().load_sweep_config(master_config, list(sweep_overrides))
        config = copy.deepcopy(self._composed[key])
        OmegaConf.copy_cache(from_config=master_config, to_config=config)
        return config

    def __getstate__(self) -> dict[str, Any]:
        # A job's process has its config already.
        return {**self.__dict__, "_composed": {}}


def as_given(overrides: ListConfig) -> list[str]:
    """Overrides without their interpolations resolved: those are each job's own, where ``hydra:`` is known."""
    given = OmegaConf.to_container(overrides, resolve=False)
    assert isinstance(given, list)
    return [str(override) for override in given]
