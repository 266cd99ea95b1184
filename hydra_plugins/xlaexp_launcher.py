"""Hydra looks for launchers in this namespace package only; what this one does is in :mod:`xlaexp.sweep`."""

from collections.abc import Sequence

from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


class XlaexpLauncher(Launcher):
    """Runs the jobs of a multirun, each in a process of its own that is forked with torch_xla loaded.

    Args:
        n_jobs: jobs at a time.
        timeout: seconds after which a job is ended; None: no limit.
        retries: how often a failed job is started again.
    """

    def __init__(self, n_jobs: int, timeout: float | None, retries: int) -> None:
        self._n_jobs, self._timeout, self._retries = n_jobs, timeout, retries

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """See Hydra."""
        self._context, self._task, self._config = hydra_context, task_function, config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """See Hydra; returns when every job has ended, whatever became of the others."""
        from xlaexp.sweep.launcher import launch

        return launch(
            self._context,
            self._task,
            self._config,
            job_overrides,
            initial_job_idx,
            n_jobs=self._n_jobs,
            timeout=self._timeout,
            retries=self._retries,
        )
