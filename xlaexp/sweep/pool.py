"""The processes that run a sweep's jobs, as the sweep sees them."""

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from xlaexp.host import Host
from xlaexp.sweep import processes, worker
from xlaexp.sweep.worker import Job

_GRACE_S = 5.0

Kind = tuple[str, ...]


def kind_of(config: DictConfig) -> Kind:
    """What a process is once it has started its runtime: a job of another kind needs another process.

    Args:
        config: of a job, Hydra's own node included.
    """
    # XLA reads flags from the environment, once.
    variables = {**config.hydra.job.env_set, **{name: os.environ.get(name) for name in config.hydra.job.env_copy}}
    device = OmegaConf.to_container(config.device, resolve=True)
    return (str(device), *sorted(f"{name}={value}" for name, value in variables.items()))


@dataclass(eq=False)
class Worker:
    """A process that runs a job, or waits for another one."""

    process: BaseProcess
    connection: Connection
    kind: Kind

    def give(self, job: Job) -> bool:
        """Gives it a job; False if it has died."""
        try:
            self.connection.send(job)
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    def over(self) -> bool:
        """Whether its job has ended, in whatever way."""
        return self.connection.poll() or self.process.exitcode is not None

    def free(self) -> bool:
        """Whether it can take another job, now that one has ended; if not, its process has ended or does so."""
        try:
            return bool(self.connection.recv())
        except (EOFError, ConnectionResetError):
            return False

    def end(self) -> None:
        """Ends it at once, with all its children."""
        if self.process.pid is not None:
            processes.end(self.process)
        self.connection.close()

    def release(self) -> None:
        """Tells it that no other job will come."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send(None)

    def dismiss(self) -> None:
        """Lets it end by itself."""
        self.release()
        self.process.join(_GRACE_S)
        self.end()


class Pool:
    """Starts workers and keeps those that can take another job.

    Args:
        sweep: the sweep's directory.
        host: the machine as the command saw it.
        reuse: whether workers take more than one job.
    """

    def __init__(self, sweep: Path, host: Host, reuse: bool) -> None:
        self._sweep, self._host, self._reuse = sweep, host, reuse
        self._busy: list[Worker] = []
        self._idle: list[Worker] = []

    def next(self, waiting: Sequence[Kind]) -> int:
        """Which of several waiting jobs to start now: one that an idle worker can run, else the first."""
        kinds = {idle.kind for idle in self._idle}
        return next((position for position, kind in enumerate(waiting) if kind in kinds), 0)

    def start(self, job: Job, most: int) -> Worker:
        """Starts a job, in an idle worker of its kind or in milliseconds in a new one.

        Args:
            job: to start.
            most: idle workers that may be left: one holds memory, and on a TPU its device.
        """
        kind = kind_of(job.config)
        for idle in [idle for idle in self._idle if idle.kind == kind]:
            self._idle.remove(idle)
            if idle.give(job):
                self._busy.append(idle)
                return idle
            idle.end()
        while len(self._idle) > most:
            self._idle.pop(0).dismiss()
        new = self._new(kind)
        new.give(job)  # if it has died already, its end says so
        return new

    def keep(self, worker: Worker) -> None:
        """Keeps a worker whose job has ended, if it can take another."""
        if self._reuse and worker.free():
            self._busy.remove(worker)
            self._idle.append(worker)
        else:
            worker.process.join(_GRACE_S)  # a thread that its job has left may keep it from ending
            self.end(worker)

    def end(self, worker: Worker) -> None:
        """Ends a worker that runs a job at once, with all its children."""
        worker.end()
        self._busy.remove(worker)

    def release(self) -> None:
        """Tells idle workers to end, without waiting for it: their runtimes take a while."""
        for idle in self._idle:
            idle.release()

    def close(self) -> None:
        """Ends all workers: at once those that run a job."""
        while self._busy:
            self.end(self._busy[-1])
        while self._idle:
            self._idle.pop().dismiss()

    def _new(self, kind: Kind) -> Worker:
        context = processes.context(self._host)
        ours, its = context.Pipe()
        process: BaseProcess = context.Process(target=worker.serve, args=(its, self._host, self._sweep, self._reuse))
        # Known before it starts, which takes long the first time: an interrupt may come before it is returned.
        new = Worker(process, ours, kind)
        self._busy.append(new)
        process.start()
        its.close()
        return new
