"""Hydra looks for launchers in this namespace package only; what this one does is in :mod:`xlaexp.sweep`."""

from collections.abc import Sequence
from typing import Any

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
        reuse: whether a process takes one job after another, so that equal graphs are compiled once.
    """

    def __init__(self, n_jobs: int, timeout: float | None, retries: int, reuse: bool) -> None:
        self._options: dict[str, Any] = {"n_jobs": n_jobs, "timeout": timeout, "retries": retries, "reuse": reuse}

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """See Hydra; claims the sweep's directory, before anything is written there."""
        from xlaexp.sweep.launcher import Options, Sweep

        self._sweep = Sweep(hydra_context, task_function, config, Options(**self._options))

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """See Hydra; returns when every job has ended, whatever became of the others."""
        return self._sweep.launch(job_overrides, initial_job_idx)

    def close(self) -> None:
        """Ends what :meth:`launch` keeps for the next batch of jobs; the sweep command calls it in the end."""
        self._sweep.close()
