"""A job in a process of its own, for engines whose workers outlive a job: Ray, joblib, Hydra's basic launcher.

The worker imports no torch and starts no XLA runtime, so that any job can follow any other in it, and whatever
becomes of the job's process, the worker goes on.
"""

import copy
import logging
import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any

from hydra import version
from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobRuntime, configure_log, env_override, setup_globals
from hydra.types import TaskFunction
from omegaconf import DictConfig, OmegaConf, read_write

from xlaexp import failure, host
from xlaexp.config.errors import ConfigError
from xlaexp.config.loader import as_given
from xlaexp.config.resolvers import register_resolvers
from xlaexp.failure import RunFailedError
from xlaexp.result import Result
from xlaexp.sweep import collect, processes
from xlaexp.sweep.ledger import Ledger

log = logging.getLogger("xlaexp")

_POLL_S = 0.5
_LONGEST = 2000  # characters of a message: it has to fit into a pipe that nobody reads yet


@dataclass(frozen=True)
class Job:
    """What the process is given; it pickles."""

    task: TaskFunction
    config: DictConfig
    """The task's own config."""
    frame: DictConfig
    """All of it, with the ``hydra`` node as the engine has completed it."""
    environment: dict[str, str]
    """Environment variables: those of the fork server are as old as the server."""
    host: host.Host
    """The engine's machine, which need not be the command's."""
    directory: Path
    """The job's output directory."""


def run(task: TaskFunction, cfg: DictConfig) -> float | list[float]:
    """Runs a job in a process of its own, unless it has ended well before.

    Args:
        task: what the job runs; importable.
        cfg: its config; Hydra has made its output directory.

    Returns:
        What the task returns.

    Raises:
        RunFailedError: the job failed; the message says why.
        ConfigError: its directory is in use, or another job's.
    """
    if _abandoned():
        os._exit(1)
    frame: Any = HydraConfig.instance().cfg
    sweep, directory = Path(str(frame.hydra.sweep.dir)), Path(str(frame.hydra.runtime.output_dir))
    try:
        with collect.claimed(directory):
            number, overrides = int(frame.hydra.job.num), as_given(frame.hydra.overrides.task)
            entry = collect.find(sweep, directory, number, overrides)
            if entry.finished:
                log.info("job %d is done already", number)
                collect.write(sweep, entry)
                return Result.read(directory).returned
            if entry.attempts:
                collect.put_aside(sweep, entry, frame.hydra.output_subdir)
            entry.begin()
            collect.write(sweep, entry)
            reason = "interrupted"
            try:
                reason = _wait(Job(task, cfg, _picklable(frame), dict(os.environ), host.detect(), directory))
            except Exception as error:
                reason = _said(error)
                raise
            finally:
                well = Ledger(sweep).settle(entry, reason)
                collect.write(sweep, entry)
            if not well:
                log.error("job %d failed: %s", number, reason)
                raise RunFailedError(f"job {number} failed: {reason}\nWhat it left is in {directory}")
            return Result.read(directory).returned
    except BlockingIOError:
        raise ConfigError(
            [f"hydra.sweep.dir: a job is running in {directory}; wait for its end, or use another hydra.sweep.dir"]
        ) from None


def _wait(job: Job) -> str:
    """Starts the process and waits for its end; says why it failed, if it did."""
    # The server imports torch_xla, which chooses a device where none is chosen; the worker keeps its environment.
    with env_override({"PJRT_DEVICE": job.host.pjrt_device or job.host.platform}):
        context = processes.context(job.host)
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_run, args=(job, sender))
        with _unknown_engine():
            process.start()
    sender.close()
    try:
        while process.exitcode is None:
            process.join(_POLL_S)
            if _abandoned():
                processes.end(process)
                os._exit(1)
        said = receiver.recv() if receiver.poll() else None
    except EOFError:
        said = None
    finally:
        if process.is_alive():  # the engine has cancelled the job
            processes.end(process)
        receiver.close()
    return failure.describe(job.directory) or said or processes.ended(process)


def _abandoned() -> bool:
    """Whether this is a worker of joblib whose command was killed: it would run what is queued, unseen.

    Those of Ray end with their command by themselves, and jobs of a cluster are to outlive it.
    """
    this, origin = multiprocessing.current_process(), multiprocessing.parent_process()
    return type(this).__module__.startswith("joblib.") and origin is not None and os.getppid() != origin.pid


@contextmanager
def _unknown_engine() -> Iterator[None]:
    """Lets a process begin that knows nothing of its parent's main module and start method: they are the engine's.

    joblib's start method is not there before joblib is imported, and Ray's main module takes a second to import.
    """
    method, main = multiprocessing.get_start_method(allow_none=True), sys.modules["__main__"]
    multiprocessing.set_start_method(None, force=True)
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
        multiprocessing.set_start_method(method, force=True)


def _run(job: Job, errors: "Connection[str, str]") -> None:
    """In the process: what Hydra has set up in the engine's worker, then the task."""
    processes.lead_group()
    processes.speak_into(job.directory)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(job.environment)
    if not job.frame.hydra.job.chdir:
        with suppress(OSError):  # where the command was given: a worker of a cluster was started somewhere else
            os.chdir(job.frame.hydra.runtime.cwd)
    register_resolvers()
    setup_globals()
    version.setbase(job.frame.hydra.runtime.version_base)
    JobRuntime.instance().set("name", job.frame.hydra.job.name)
    HydraConfig.instance().set_config(job.frame)
    configure_log(job.frame.hydra.job_logging, job.frame.hydra.verbose)
    host.remember(job.host)
    try:
        job.task(job.config)
    except Exception as error:
        traceback.print_exc()
        errors.send(_said(error)[:_LONGEST])
        sys.exit(1)


def _said(error: Exception) -> str:
    """An exception in one line."""
    if isinstance(error, ConfigError):
        return "; ".join(error.problems)
    return failure.first_line(error) if isinstance(error, RunFailedError) else failure.brief(error)


def _picklable(frame: DictConfig) -> DictConfig:
    """A config without the schemas of plugins: the worker of an engine has imported those twice."""
    frame = copy.deepcopy(frame)
    with read_write(frame.hydra):
        for plugin in ("launcher", "sweeper"):
            frame.hydra[plugin] = OmegaConf.to_container(frame.hydra[plugin], enum_to_str=True)
    return frame
