"""Ends a run that hangs, and says which replica hangs, and where.

A replica that waits in a collective for one that will never come waits for ever, and cannot be interrupted there.
"""

import faulthandler
import json
import logging
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from xlaexp import failure
from xlaexp.console import console

log = logging.getLogger("xlaexp")

_GRACE_S = 1.0
_SLACK_S = 5.0
_FILES = "hang-*.txt"


class HangError(Exception):
    """A replica has finished no step and no batch of an evaluation for longer than it may."""


@dataclass
class _Replica:
    ordinal: int
    step: int = 0
    """The last one that it has finished."""
    passed: int = 0
    """Marks that it has come to, and batches: the one that hangs is behind the ones that wait for it."""
    at: float = field(default_factory=time.monotonic)


_replicas: dict[int, _Replica] = {}  # by thread
_watching: tuple[threading.Thread, threading.Event] | None = None
_lock = threading.Lock()


def beat(step: int | None = None) -> None:
    """Says that this thread's replica has finished a step, or a batch of an evaluation.

    Args:
        step: optimizer steps so far; None: of an evaluation.
    """
    replica = _replicas.get(threading.get_ident())
    if replica is not None:
        replica.at = time.monotonic()
        replica.passed += 1
        if step is not None:
            replica.step = step


def passed() -> None:
    """Says that this thread's replica has come to a mark, where it may have to wait for the others."""
    replica = _replicas.get(threading.get_ident())
    if replica is not None:
        replica.passed += 1


@contextmanager
def watched(ordinal: int, timeout: float | None, directory: Path) -> Iterator[None]:
    """Ends the process once this thread's replica does not beat for too long.

    Args:
        ordinal: the replica's number.
        timeout: seconds; longer than what comes before the first step, its compilation included. None: for ever.
        directory: the run's output directory.
    """
    if timeout is None:
        yield
        return
    global _watching
    thread = threading.get_ident()
    with _lock:
        _replicas[thread] = _Replica(ordinal)
        if _watching is None:
            over = threading.Event()
            watching = threading.Thread(target=_watch, args=(timeout, directory, over), name="watchdog", daemon=True)
            watching.start()
            _watching = watching, over
    try:
        yield
    finally:
        with _lock:
            del _replicas[thread]
            if not _replicas:
                watching, over = _watching
                over.set()
                watching.join()
                _watching = None


def tidy(directory: Path) -> None:
    """Removes the files of processes that were ended for another reason than a hang."""
    for path in directory.glob(_FILES):
        if not path.stat().st_size:
            path.unlink()


def _watch(timeout: float, directory: Path, over: threading.Event) -> None:
    path = directory / f"hang-{os.getpid()}.txt"
    pause = min(1.0, timeout / 4)
    with path.open("w") as file:
        try:
            while not over.is_set():
                found = list(_replicas.values())
                if any(time.monotonic() - replica.at > timeout for replica in found):
                    _end(found, timeout, directory, file)
                # For a hang that holds the GIL, so that this thread cannot run.
                faulthandler.dump_traceback_later(timeout + pause + _SLACK_S, file=file, exit=True)
                over.wait(pause)
        finally:
            faulthandler.cancel_dump_traceback_later()
            path.unlink(missing_ok=True)


def _end(found: list[_Replica], timeout: float, directory: Path, file: IO[str]) -> None:
    replicas = [[replica.passed, replica.ordinal, replica.step] for replica in found]
    print("[marks and batches, replica, last step]:", json.dumps(replicas), file=file, flush=True)
    faulthandler.dump_traceback(file, all_threads=True)
    time.sleep(_GRACE_S)  # for the other processes, which find out about now
    for path in directory.glob(_FILES):
        with path.open(errors="replace") as other:
            line = other.readline().partition(": ")[2]
        replicas += json.loads(line) if line else []
    _, ordinal, step = min(replicas)
    error = HangError(
        f"no step and no batch of an evaluation for {timeout:g} s (device.timeout); its last step was {step}. What "
        f"every thread was doing is in {directory}/{_FILES}"
    )
    if failure.record(directory, ordinal, error):
        log.error("replica %d hangs: %s", ordinal, error)
        console.show_cursor()
        if not failure.watched():  # else the parent says so
            print(failure.describe(directory), file=sys.stderr)
    for child in multiprocessing.active_children():  # workers of a DataLoader
        child.kill()
    os._exit(1)
