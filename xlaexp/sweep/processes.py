"""Starting and ending the processes of jobs."""

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from multiprocessing import forkserver
from multiprocessing.context import ForkProcess
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from xlaexp.host import Host

CONSOLE = "console.log"
# The last two are what most jobs load besides: the digits, and TensorBoard.
_PRELOADED = ["xlaexp.launch", "xlaexp.cli", "torchvision.models", "sklearn.datasets", "torch.utils.tensorboard"]
_POLL_S = 0.2


def context(host: Host) -> Any:
    """A multiprocessing context whose processes have torch_xla loaded and no XLA runtime started.

    The first process takes as long as the imports, the others milliseconds.

    Args:
        host: the machine as the command saw it.
    """
    # Importing torch_xla in the server chooses a device, and says so, where none is chosen.
    os.environ["PJRT_DEVICE"] = os.environ.get("PJRT_DEVICE") or host.platform
    if "torch_xla" in sys.modules and threading.active_count() == 1:
        # This process can be forked itself; with other threads in it, one may hold a lock for ever in the child.
        return multiprocessing.get_context("fork")
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(_PRELOADED)
    return server


def prepare(host: Host) -> None:
    """Begins with the imports that the first process has to wait for, and returns at once.

    Args:
        host: the machine as the command saw it.
    """
    if context(host).get_start_method() != "forkserver":
        return
    # Ctrl-C on a terminal reaches the server, too: it would print where in its imports it was.
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        forkserver.ensure_running()
    finally:
        signal.signal(signal.SIGINT, previous)


def abandon() -> None:
    """Ends what :func:`prepare` has begun; it holds the terminal open until its imports are over."""
    pid = getattr(forkserver._forkserver, "_forkserver_pid", None)  # there is no public way to end it
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def orphaned() -> bool:
    """Whether the process that has asked for this one is gone."""
    origin = multiprocessing.parent_process()
    if origin is None:
        return False
    # Later children of one that forks hold the other end of the sentinel open a little longer than it lives.
    forked = isinstance(multiprocessing.current_process(), ForkProcess)
    return not origin.is_alive() or (forked and os.getppid() != origin.pid)


def lead_group() -> None:
    """Makes this process one that can be ended with all its children, and that ends when its parent is gone."""
    os.setsid()
    parent = os.getppid()

    def poll() -> None:
        # The parent may have gone before this process could see who it was.
        while os.getppid() == parent and not orphaned():
            time.sleep(_POLL_S)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=poll, name="parent-watch", daemon=True).start()


def end(process: BaseProcess) -> None:
    """Ends a process at once, with all its children, if it leads its group."""
    if process.pid is not None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            process.kill()
    process.join()


def ended(process: BaseProcess) -> str:
    """How a process that has ended did so, in two or three words."""
    code = process.exitcode
    return f"ended by {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"


def speak_into(directory: Path) -> None:
    """Sends what this process and its children print into a job's directory, which is made."""
    directory.mkdir(parents=True, exist_ok=True)
    console = os.open(directory / CONSOLE, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        stream.flush()
        os.dup2(console, number)
    os.close(console)
