"""A process that runs jobs: forked with torch_xla loaded and no XLA runtime started."""

import gc
import signal
import sys
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from hydra import version
from hydra._internal.callbacks import Callbacks
from hydra.core.utils import JobRuntime, run_job, setup_globals
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from xlaexp import host
from xlaexp.config import choices
from xlaexp.config.resolvers import register_resolvers
from xlaexp.sweep import ledger, processes


@dataclass(frozen=True)
class Job:
    """What a worker is given; it pickles."""

    config: DictConfig
    """The composed config, Hydra's own node included."""
    context: HydraContext
    task: TaskFunction
    directory: Path
    """The job's output directory."""


def serve(connection: Connection, found: host.Host, sweep: Path, reuse: bool) -> None:
    """Runs the jobs that come through ``connection``: one, or with ``reuse`` one after another.

    After each that went well it says whether it can take another. One that did not ends the process.

    Args:
        connection: to the process that has started this one.
        found: the machine as the command saw it: in this process the environment has changed.
        sweep: the sweep's directory.
        reuse: whether to go on after a job.
    """
    processes.lead_group()
    ledger.hold(sweep)
    if processes.orphaned():
        return  # the sweep was killed just now; one that goes on from it may not have seen that this process begins
    signal.signal(signal.SIGINT, signal.default_int_handler)
    register_resolvers()
    choices.register()
    setup_globals()
    host.remember(found)
    gc.freeze()  # else every full collection, one after each job at least, goes through all that torch has imported
    if not reuse:
        with connection:
            if job := _received(connection):
                run(job)
        return
    from xlaexp.launch import serve_several_runs
    from xlaexp.sweep.state import ProcessState

    serve_several_runs()
    state = ProcessState()
    while job := _received(connection):
        run(job)
        clean = state.restore(packages=list(job.config.plugins))
        connection.send(clean)
        if not clean:
            return


def _received(connection: Connection) -> Job | None:
    """The next job, or None where none will come."""
    try:
        job: Job | None = connection.recv()
    except EOFError:  # the sweep was killed
        return None
    return job


def run(job: Job) -> None:
    """Runs a job.

    Raises:
        SystemExit: it did not end well.
    """
    processes.speak_into(job.directory)
    version.setbase(job.config.hydra.runtime.version_base)
    JobRuntime.instance().set("name", job.config.hydra.job.name)
    try:
        result = run_job(
            hydra_context=HydraContext(job.context.config_loader, Callbacks(job.config)),
            task_function=job.task,
            config=job.config,
            job_dir_key="hydra.sweep.dir",
            job_subdir_key="hydra.sweep.subdir",
        )
        _ = result.return_value
    except Exception:
        traceback.print_exc()
        sys.exit(1)
