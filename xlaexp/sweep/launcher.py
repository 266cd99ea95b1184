"""Runs the jobs of a multirun: queue, processes, time limits, retries, and a ledger that survives all of it."""

import logging
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing import connection
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobReturn, JobStatus, configure_log, filter_overrides, setup_globals
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict, read_write

from xlaexp import failure, host
from xlaexp.config.errors import ConfigError
from xlaexp.sweep import processes, results
from xlaexp.sweep.display import Display
from xlaexp.sweep.ledger import Entry, Ledger, mode_of, owned
from xlaexp.sweep.pool import Kind, Pool, Worker, kind_of
from xlaexp.sweep.worker import Job

log = logging.getLogger("xlaexp")

_NO_REUSE = (
    "hydra.launcher.reuse: the replicas of device=multi are processes on a TPU, which end with their job; give "
    "hydra.launcher.reuse=false, or device=single"
)


class JobFailedError(Exception):
    """A job of a sweep that has failed; what it left says why."""


class Returned(JobReturn):
    """What Hydra's sweepers get for a job. Hydra's own also prints that the first one failed, and nothing else."""

    @property
    def return_value(self) -> Any:
        """What the job came to.

        Raises:
            JobFailedError: it failed.
        """
        if self.status == JobStatus.FAILED:
            raise self._return_value
        return self._return_value

    @return_value.setter
    def return_value(self, value: Any) -> None:
        self._return_value = value


@dataclass(frozen=True)
class Options:
    """Options of ``hydra/launcher=xlaexp``."""

    n_jobs: int
    """Jobs at a time."""
    timeout: float | None
    """Seconds after which a job is ended; None: no limit."""
    retries: int
    """How often a failed job is started again."""
    reuse: bool
    """Whether a process takes one job after another."""


@dataclass
class Running:
    """A job that runs."""

    entry: Entry
    worker: Worker
    deadline: float


class Sweep:
    """One sweep in its directory, which is its own until it is closed.

    Args:
        context: Hydra's.
        task: what a job runs.
        config: the frame of the sweep.
        options: how to run the jobs.

    Raises:
        ConfigError: another sweep runs in the directory, or an option is out of range.
    """

    def __init__(self, context: HydraContext, task: TaskFunction, config: DictConfig, options: Options) -> None:
        if options.n_jobs < 1 or options.retries < 0 or (options.timeout is not None and options.timeout <= 0):
            raise ConfigError(
                ["hydra.launcher: n_jobs has to be 1 or more, retries 0 or more, timeout null or more than 0 seconds"]
            )
        self._context, self._task, self._config, self._options = context, task, config, options
        setup_globals()
        configure_log(config.hydra.hydra_logging, config.hydra.verbose)
        directory = Path(str(config.hydra.sweep.dir)).absolute()
        directory.mkdir(parents=True, exist_ok=True)
        self._open = ExitStack()
        try:
            self._open.enter_context(owned(directory))
        except BlockingIOError:
            problem = f"hydra.sweep.dir: another sweep is running in {directory}; use another one"
            raise ConfigError([problem]) from None
        self._pool = Pool(directory, host.this_host(), options.reuse)
        self._open.callback(self._pool.close)
        self._ledger = Ledger.read(directory)
        self._ledger.recover()
        self._configs: dict[int, DictConfig] = {}
        self._kinds: dict[int, Kind] = {}
        self._mode = mode_of(config)

    def launch(self, job_overrides: Sequence[Sequence[str]], first: int) -> list[JobReturn]:
        """Runs jobs that the ledger does not know as done, and waits for all of them.

        Args:
            job_overrides: of each job.
            first: number of the first one, where the ledger does not have it.

        Returns:
            For each job its objective, or its failure.

        Raises:
            ConfigError: a job cannot be run with these options.
        """
        if not self._configs:  # the first batch; until its first job starts, torch_xla has to be imported
            log.info("sweep in %s, %d job(s) at a time", self._ledger.directory, self._options.n_jobs)
        entries = self._enter(job_overrides, first)
        self._run(entries)
        more = sum(not entry.finished for entry in entries) - 1
        return [self._returned(entry, f" ({more} more failed)" if more > 0 else "") for entry in entries]

    def close(self) -> None:
        """Ends the processes, writes and shows the results and gives the directory free."""
        self._pool.release()
        with self._open:
            if self._ledger.entries:
                results.write(self._ledger, self._mode)
        if self._ledger.entries:
            results.show(self._ledger, self._mode)

    def _enter(self, job_overrides: Sequence[Sequence[str]], first: int) -> list[Entry]:
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
            self._mode = mode_of(config)
            self._configs[number], self._kinds[number] = config, kind_of(config)
            if self._options.reuse and config.device.launch == "multi" and host.this_host().platform != "CPU":
                raise ConfigError([_NO_REUSE])
            if entry is None:
                entry = Entry(number, own[offset], str(config.hydra.sweep.subdir))
                self._ledger.entries.append(entry)
            entries.append(entry)
        self._ledger.write()
        finished = sum(entry.finished for entry in entries)
        if finished:
            log.info("%d of %d jobs are done already", finished, len(entries))
        return entries

    def _run(self, entries: Sequence[Entry]) -> None:
        """Runs entries that are not done; in the end everything that could be done is."""
        queue = [entry for entry in entries if not entry.finished]
        for entry in queue:
            entry.state = "queued"
        left = {entry.number: self._options.retries for entry in queue}
        running: list[Running] = []
        try:
            with Display(self._ledger) as display:
                while queue or running:
                    while queue and len(running) < self._options.n_jobs:
                        position = self._pool.next([self._kinds[entry.number] for entry in queue])
                        running.append(self._start(queue.pop(position), len(running)))
                        display.started(running[-1].entry)
                    _wait(running)
                    for job in list(running):
                        over = job.worker.over()
                        if not over and time.monotonic() <= job.deadline:
                            continue
                        running.remove(job)
                        self._settle(job, late=not over)
                        if job.entry.state == "failed" and left[job.entry.number]:
                            left[job.entry.number] -= 1
                            queue.append(job.entry)
                        display.ended(job.entry)
        except BaseException:  # an interrupt: what runs now is queued again when the sweep is resumed
            self._pool.close()
            for entry in entries:
                if entry.state == "running":
                    self._ledger.put_back(entry, "interrupted")
            raise
        finally:
            self._ledger.write()

    def _returned(self, entry: Entry, others: str) -> JobReturn:
        """What Hydra's sweeper gets for a job; of those that failed the first one is told, with a word on others."""
        ended = Returned(overrides=entry.overrides, cfg=self._configs[entry.number], working_dir=entry.directory)
        ended.hydra_cfg = config = self._configs[entry.number]
        with read_write(config.hydra.runtime):
            config.hydra.runtime.output_dir = str(self._ledger.directory / entry.directory)
        if entry.finished:
            values = list(entry.objectives.values())
            ended.status, ended.return_value = JobStatus.COMPLETED, values if len(values) > 1 else entry.objective
        else:
            ended.status = JobStatus.FAILED
            ended.return_value = JobFailedError(f"job {entry.number} failed: {entry.reason}{others}")
        return ended

    def _start(self, entry: Entry, running: int) -> Running:
        if entry.attempts and self._configs[entry.number].get("resume") != "auto":  # else it goes on where it stopped
            self._ledger.put_aside(entry)
        entry.begin()
        self._ledger.write()
        directory = self._ledger.directory / entry.directory
        job = Job(config=self._configs[entry.number], context=self._context, task=self._task, directory=directory)
        worker = self._pool.start(job, most=self._options.n_jobs - running - 1)
        entry.started = time.time()  # now: the first process has waited for the imports
        return Running(entry, worker, time.monotonic() + (self._options.timeout or float("inf")))

    def _settle(self, job: Running, late: bool) -> None:
        """Ends a job that is late, and writes down what became of it."""
        directory = self._ledger.directory / job.entry.directory
        if late:
            self._pool.end(job.worker)
            reason = f"no end after {self._options.timeout:g} seconds (hydra.launcher.timeout)"
        else:
            self._pool.keep(job.worker)
            reason = failure.describe(directory) or processes.ended(job.worker.process)
        self._ledger.settle(job.entry, reason)
        if job.entry.state == "failed":
            directory.mkdir(parents=True, exist_ok=True)
            name = self._configs[job.entry.number].hydra.job.name
            with (directory / f"{name}.log").open("a") as file:
                file.write(f"[{time.strftime('%Y-%m-%d %H:%M:%S')}][xlaexp.sweep][ERROR] {reason}\n")
        self._ledger.write()


def _wait(running: Sequence[Running]) -> None:
    """Until a job has ended or is late, or a display wants to be drawn."""
    soonest = min(job.deadline for job in running) - time.monotonic()
    sources = [source for job in running for source in (job.worker.process.sentinel, job.worker.connection)]
    connection.wait(sources, timeout=max(0.0, min(soonest, 0.5)))
