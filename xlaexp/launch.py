"""One function for each ``device.launch``."""

import logging
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from xlaexp import failure, replica, stopping, watchdog
from xlaexp.config.schema import Config
from xlaexp.console import console
from xlaexp.result import Result
from xlaexp.xla import replicas, runtime

log = logging.getLogger("xlaexp")


def launch(config: Config, directory: Path) -> Result:
    """Runs all replicas of a config and waits for them.

    Args:
        config: the checked config.
        directory: the output directory, this run's own.

    Raises:
        RunFailedError: a replica failed; the message says which and why.
        StoppedError: the run was asked to stop; its checkpoint is on disk.
    """
    stopping.clear()
    try:
        with _stoppable(saves=config.evaluated is None):
            LAUNCHERS[config.device.launch](config, directory)
        return Result.read(directory)
    except stopping.StoppedError:
        raise
    except Exception as error:
        reason = failure.describe(directory)
        if reason is None and isinstance(error, BrokenExecutor):
            # Only the system can do that: the out-of-memory killer, a person, or an abort in native code.
            log.error("a process of replicas has died without a word")
            reason = (
                f"the launch failed: {type(error).__name__}: a process of replicas died without a word: it was killed "
                "(memory?) or it aborted; what native code said of it stands above"
            )
        elif reason is None:
            # No replica could say anything: the process was killed or aborted, or the launch itself failed.
            log.exception("the launch failed")
            reason = f"the launch failed: {type(error).__name__}: {error}"
        raise failure.RunFailedError(f"{reason}\nIts traceback is in the log in {directory}") from error
    finally:
        watchdog.tidy(directory)


def single(config: Config, directory: Path) -> None:
    """One replica in this process."""
    with replicas.environment(config.platform, 1):
        replica.run(0, config, directory)


def multi(config: Config, directory: Path) -> None:
    """A replica a device, in child processes; on a CPU they are threads of one.

    Raises:
        RuntimeError: this process has started the XLA runtime already.
    """
    if runtime.is_initialized():
        raise RuntimeError(
            "device=multi cannot start here: this process has already started the XLA runtime (by a run with "
            "device=single, a tensor on 'xla' or torch_xla.device()); start it in a process of its own"
        )
    with replicas.environment(config.platform, config.replicas):
        replicas.launch_all(replica.run_in_child, (config, directory))


def colab(config: Config, directory: Path) -> None:
    """One replica in this process, through ``xmp.spawn(fn, nprocs=1)``.

    Several fail on Colab's TPU runtime before the function starts: a preset TPU_PROCESS_ADDRESSES names one
    worker where four are expected (huggingface/transformers#28204). It is out of the way for one, too.
    """
    with replicas.environment(config.platform, 1, without=("TPU_PROCESS_ADDRESSES",)):
        replicas.launch_one(replica.run, (config, directory))


def multi_here(config: Config, directory: Path) -> None:
    """A replica a device, as threads of this process; for processes that serve several runs, on a CPU.

    Args:
        config: the checked config.
        directory: the output directory.
    """
    over = failure.watch(directory)
    try:
        with replicas.environment(config.platform, config.replicas):
            replicas.launch_threads(replica.run, (config, directory))
    finally:
        over.set()


LAUNCHERS: dict[str, Callable[[Config, Path], None]] = {"single": single, "multi": multi, "colab": colab}


def serve_several_runs() -> None:
    """Makes this process one that runs one config after another on the devices that it once has got.

    The graphs that one run compiles are there for the next. It cannot launch children on those devices any more.
    """
    LAUNCHERS["multi"] = multi_here


@contextmanager
def _stoppable(saves: bool) -> Iterator[None]:
    """Lets a signal stop the run at its next step boundary, and a second one end it at once.

    Child processes inherit the handler. On a terminal Ctrl-C reaches them as well as their parent, so that they take
    any number of signals for one; at the second one their parent ends them.

    Args:
        saves: whether the run has something to save; else the first signal ends it at once.
    """
    parent = os.getpid()

    def stop(signum: int, frame: FrameType | None) -> None:
        at_once = not saves or stopping.requested() is not None
        stopping.request(signum)
        if os.getpid() != parent:
            return
        for child in multiprocessing.active_children():
            if at_once:
                child.kill()
            elif child.pid is not None:
                os.kill(child.pid, signum)
        if at_once:
            console.show_cursor()  # a child's progress bar may have taken it away
            raise KeyboardInterrupt
        log.warning("stops after this step, and saves; the same signal again ends it at once")

    try:
        previous = {number: signal.signal(number, stop) for number in stopping.SIGNALS}
    except ValueError:  # not the main thread: whoever owns it handles signals
        yield
        return
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
