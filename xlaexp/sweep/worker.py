"""The process of one job: forked with torch_xla loaded and no XLA runtime started."""

import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from hydra import version
from hydra._internal.callbacks import Callbacks
from hydra.core.utils import JobRuntime, run_job, setup_globals
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from xlaexp import host
from xlaexp.config import choices
from xlaexp.config.resolvers import register_resolvers
from xlaexp.sweep import ledger

PRELOADED = ["xlaexp.launch", "xlaexp.cli", "torchvision.models"]
CONSOLE = "console.log"
_POLL_S = 0.2


@dataclass(frozen=True)
class Job:
    """What a job's process is given; it pickles."""

    config: DictConfig
    """The composed config, Hydra's own node included."""
    context: HydraContext
    task: TaskFunction
    host: host.Host
    """The machine as the command saw it: in this process the environment has changed."""
    sweep: Path
    """The sweep's directory."""
    directory: Path
    """The job's output directory."""


def start(job: Job) -> BaseProcess:
    """Starts a job's process, in milliseconds once the server has torch_xla loaded."""
    # Importing torch_xla in the server chooses a device, and says so, where none is chosen.
    os.environ["PJRT_DEVICE"] = os.environ.get("PJRT_DEVICE") or job.host.platform
    if "torch_xla" in sys.modules and threading.active_count() == 1:
        # This process can be forked itself; with other threads in it, one may hold a lock for ever in the child.
        context: Any = multiprocessing.get_context("fork")
    else:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOADED)
    process: BaseProcess = context.Process(target=run, args=(job,))
    process.start()
    return process


def run(job: Job) -> None:
    """Runs a job; its exit code is 0 if it ended well."""
    os.setsid()  # so that it can be ended with all its children
    ledger.hold(job.sweep)
    _watch_parent()
    job.directory.mkdir(parents=True, exist_ok=True)
    console = os.open(job.directory / CONSOLE, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(console, 1)
    os.dup2(console, 2)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    register_resolvers()
    choices.register()
    setup_globals()
    version.setbase(job.config.hydra.runtime.version_base)
    JobRuntime.instance().set("name", job.config.hydra.job.name)
    host.remember(job.host)
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


def end(process: BaseProcess) -> None:
    """Ends a job at once, with all its children."""
    if process.pid is not None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            process.kill()
    process.join()


def _watch_parent() -> None:
    """Ends this job when the process that has started it is gone."""
    parent = os.getppid()

    def poll() -> None:
        while os.getppid() == parent:
            time.sleep(_POLL_S)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=poll, name="parent-watch", daemon=True).start()
