"""Callbacks of a user for Hydra."""

import os
from pathlib import Path
from typing import Any

from hydra.core.utils import JobReturn, JobStatus
from hydra.experimental.callback import Callback
from omegaconf import DictConfig


class Writer(Callback):
    """Appends lines to ``file``."""

    def __init__(self, file: str) -> None:
        self._file = Path(file)

    def _add(self, line: str) -> None:
        with self._file.open("a") as file:
            file.write(f"{line}\n")


class Recorder(Writer):
    """Appends a line whenever Hydra calls it."""

    def on_run_start(self, config: DictConfig, **kwargs: Any) -> None:
        self._add("run starts")

    def on_run_end(self, config: DictConfig, **kwargs: Any) -> None:
        self._add("run ends")

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        self._add("multirun starts")

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        self._add("multirun ends")

    def on_job_start(self, config: DictConfig, **kwargs: Any) -> None:
        self._add(f"job seed={config.seed} starts in {config.hydra.runtime.output_dir}, {os.environ['NOTED']}")

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **kwargs: Any) -> None:
        self._add(f"job seed={config.seed} ends: {job_return.status.name} {job_return.return_value:.6f}")


class Journal(Writer):
    """Appends a line when a job starts, and when it has ended well: its result has been written then."""

    def on_job_start(self, config: DictConfig, **kwargs: Any) -> None:
        self._add(f"start {config.seed}")

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **kwargs: Any) -> None:
        if job_return.status is JobStatus.COMPLETED:
            self._add(f"end {config.seed}")
