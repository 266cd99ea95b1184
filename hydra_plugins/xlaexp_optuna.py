"""Hydra looks for sweepers in this namespace package only; what this one does is in :mod:`xlaexp.sweep.search`."""

from typing import Any

from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf


class OptunaSweeper(Sweeper):
    """Searches with Optuna; its options are in ``conf/hydra/sweeper/optuna.yaml``.

    Attributes:
        launcher: runs the jobs.
    """

    launcher: Launcher

    def __init__(self, **options: Any) -> None:
        # They are read from the config, where interpolations and the hydra node are at hand.
        del options

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """See Hydra."""
        from hydra.core.plugins import Plugins
        from hydra.core.utils import configure_log

        configure_log(config.hydra.hydra_logging, config.hydra.verbose)  # as Hydra's own launchers do, but later
        self._context, self._config = hydra_context, config
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> Any:
        """See Hydra; raises what the first failed job has raised, after all have ended."""
        from pathlib import Path

        from xlaexp.sweep.search import Search

        search = Search(self._context, self._config)
        OmegaConf.save(self._config, Path(str(self._config.hydra.sweep.dir)) / "multirun.yaml")
        if failure := search.run(self.launcher):
            raise failure
