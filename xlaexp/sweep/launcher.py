"""Runs the jobs of a multirun: queue, processes, time limits, retries, and a ledger that survives all of it."""

import logging
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobReturn, JobStatus, configure_log, filter_overrides, setup_globals
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from xlaexp import failure, host
from xlaexp.config.errors import ConfigError
from xlaexp.sweep import results, worker
from xlaexp.sweep.display import Display
from xlaexp.sweep.ledger import Entry, Ledger, owned

log = logging.getLogger("xlaexp")


class JobFailedError(Exception):
    """A job of a sweep that has failed; what it left says why."""


@dataclass
class Running:
    """A job that runs."""

    entry: Entry
    process: BaseProcess
    deadline: float


def launch(
    context: HydraContext,
    task: TaskFunction,
    config: DictConfig,
    job_overrides: Sequence[Sequence[str]],
    initial_job_idx: int,
    n_jobs: int,
    timeout: float | None,
    retries: int,
) -> list[JobReturn]:
    """Runs jobs that the sweep's ledger does not know as done, and waits for all of them.

    Args:
        context: Hydra's.
        task: what a job runs.
        config: the frame of the sweep.
        job_overrides: of each job.
        initial_job_idx: number of the first one.
        n_jobs: jobs at a time.
        timeout: seconds after which a job is ended, or None.
        retries: how often a failed job is started again.

    Returns:
        For each job its objective, or its failure.

    Raises:
        ConfigError: another sweep runs in the directory, or an option is out of range.
    """
    if n_jobs < 1 or retries < 0 or (timeout is not None and timeout <= 0):
        raise ConfigError(
            ["hydra.launcher: n_jobs has to be 1 or more, retries 0 or more, timeout null or more than 0 seconds"]
        )
    setup_globals()
    configure_log(config.hydra.hydra_logging, config.hydra.verbose)
    directory = Path(str(config.hydra.sweep.dir)).absolute()
    directory.mkdir(parents=True, exist_ok=True)
    try:
        with owned(directory):
            sweep = Sweep(context, task, config, directory)
            entries = sweep.enter(job_overrides, initial_job_idx)
            sweep.run(entries, n_jobs, timeout, retries)
            return [sweep.returned(entry) for entry in entries]
    except BlockingIOError:
        raise ConfigError([f"hydra.sweep.dir: another sweep is running in {directory}; use another one"]) from None


class Sweep:
    """One sweep in its directory.

    Args:
        context: Hydra's.
        task: what a job runs.
        config: the frame of the sweep.
        directory: of the sweep.
    """

    def __init__(self, context: HydraContext, task: TaskFunction, config: DictConfig, directory: Path) -> None:
        self._context, self._task, self._config = context, task, config
        self._ledger = Ledger.read(directory)
        self._ledger.recover()
        self._configs: dict[int, DictConfig] = {}
        self._mode = "max"

    def enter(self, job_overrides: Sequence[Sequence[str]], first: int) -> list[Entry]:
        """The ledger's entries of jobs; new ones for those that it does not have."""
        own = [list(filter_overrides(overrides)) for overrides in job_overrides]
        taken = {entry.number for entry in self._ledger.entries}
        entries = []
        for offset, (entry, overrides) in enumerate(zip(self._ledger.find(own), job_overrides, strict=True)):
            number = entry.number if entry else next(n for n in range(first + offset, 10**9) if n not in taken)
            taken.add(number)
            config = self._context.config_loader.load_sweep_config(self._config, list(overrides))
            with read_write(config.hydra), open_dict(config.hydra):
                config.hydra.job.id = config.hydra.job.num = number
                config.hydra.sweep.dir = str(self._ledger.directory)
            HydraConfig.instance().set_config(config)
            self._mode = str(OmegaConf.select(config, "objective.mode", default="max"))
            self._configs[number] = config
            if entry is None:
                entry = Entry(number, own[offset], str(config.hydra.sweep.subdir))
                self._ledger.entries.append(entry)
            entries.append(entry)
        self._ledger.write()
        done = sum(entry.state == "done" for entry in entries)
        if done:
            log.info("%d of %d jobs are done already", done, len(entries))
        return entries

    def run(self, entries: Sequence[Entry], n_jobs: int, timeout: float | None, retries: int) -> None:
        """Runs entries that are not done; in the end everything that could be done is."""
        queue = [entry for entry in entries if entry.state != "done"]
        for entry in queue:
            entry.state = "queued"
        left = {entry.number: retries for entry in queue}
        running: list[Running] = []
        display = Display(self._ledger, entries)
        try:
            with display:
                while queue or running:
                    while queue and len(running) < n_jobs:
                        running.append(self._start(queue.pop(0), timeout))
                        display.started(running[-1].entry)
                    self._wait(running)
                    for job in list(running):
                        late = time.monotonic() > job.deadline
                        if job.process.exitcode is None and not late:
                            continue
                        running.remove(job)
                        self._settle(job, late and job.process.exitcode is None, timeout)
                        if job.entry.state == "failed" and left[job.entry.number]:
                            left[job.entry.number] -= 1
                            queue.append(job.entry)
                        display.ended(job.entry)
        finally:
            for job in running:  # an interrupt: they are queued again when the sweep is resumed
                worker.end(job.process)
                self._ledger.settle(job.entry, "interrupted")
            self._ledger.write()
            results.write(self._ledger, self._mode)
        results.show(self._ledger, self._mode)

    def returned(self, entry: Entry) -> JobReturn:
        """What Hydra's sweeper gets for a job."""
        ended = JobReturn(overrides=entry.overrides, cfg=self._configs[entry.number], working_dir=entry.directory)
        if entry.state == "done":
            ended.status, ended.return_value = JobStatus.COMPLETED, entry.objective
        else:
            ended.status = JobStatus.FAILED
            ended.return_value = JobFailedError(f"job {entry.number} failed: {entry.reason}")
        return ended

    def _start(self, entry: Entry, timeout: float | None) -> Running:
        if entry.attempts:
            self._ledger.put_aside(entry)
        entry.attempts += 1
        entry.state, entry.started, entry.ended, entry.reason = "running", time.time(), None, None
        self._ledger.write()
        job = worker.Job(
            config=self._configs[entry.number],
            context=self._context,
            task=self._task,
            host=host.this_host(),
            sweep=self._ledger.directory,
            directory=self._ledger.directory / entry.directory,
        )
        deadline = time.monotonic() + timeout if timeout else float("inf")
        return Running(entry, worker.start(job), deadline)

    @staticmethod
    def _wait(running: Sequence[Running]) -> None:
        """Until a job has ended or is late, or a display wants to be drawn."""
        soonest = min(job.deadline for job in running) - time.monotonic()
        connection.wait([job.process.sentinel for job in running], timeout=max(0.0, min(soonest, 0.5)))

    def _settle(self, job: Running, late: bool, timeout: float | None) -> None:
        """Ends a job that is late, and writes down what became of it."""
        directory = self._ledger.directory / job.entry.directory
        if late:
            worker.end(job.process)
            reason = f"no end after {timeout:g} seconds (hydra.launcher.timeout)"
        else:
            job.process.join()
            reason = failure.describe(directory) or _reason(job.process.exitcode)
        self._ledger.settle(job.entry, reason)
        if job.entry.state == "failed":
            directory.mkdir(parents=True, exist_ok=True)
            name = self._configs[job.entry.number].hydra.job.name
            with (directory / f"{name}.log").open("a") as file:
                file.write(f"[{time.strftime('%Y-%m-%d %H:%M:%S')}][xlaexp.sweep][ERROR] {reason}\n")
        self._ledger.write()


def _reason(code: int | None) -> str:
    if code is not None and code < 0:
        return f"ended by {signal.Signals(-code).name}"
    return f"exit code {code}"
