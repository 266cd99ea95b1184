"""How one replica's failure ends the whole run, within seconds."""

import json
import os
import threading
from pathlib import Path

FILE = "failure.json"
GRACE_S = 3.0
_POLL_S = 0.2
_watched = False


class RunFailedError(Exception):
    """A run that ended without a result; its traceback is in the job log."""


def first_line(error: object) -> str:
    """What an exception, or a text, says first."""
    return next(iter(str(error).strip().splitlines()), "")


def brief(error: BaseException) -> str:
    """An exception in one line: its type, and what it says first."""
    return f"{type(error).__name__}: {first_line(error)}"


def record(directory: Path, ordinal: int, error: BaseException) -> bool:
    """Writes down the first failure of a run.

    Returns:
        Whether this was the first.
    """
    content = {"replica": ordinal, "error": type(error).__name__, "message": str(error)}
    try:
        with (directory / FILE).open("x") as file:
            json.dump(content, file)
    except FileExistsError:
        return False
    return True


def describe(directory: Path) -> str | None:
    """The first failure of a run in one line, or None where no replica has recorded one."""
    try:
        content = json.loads((directory / FILE).read_text())
    except (OSError, ValueError):
        return None
    return f"replica {content['replica']} failed: {content['error']}: {first_line(content['message'])}"


def watched() -> bool:
    """Whether this process has a watch: it has a parent that says why it has ended."""
    return _watched


def watch(directory: Path) -> threading.Event:
    """Ends this process a few seconds after a replica anywhere has failed, or once the parent is gone.

    A replica that waits in a collective for one that has failed would wait for ever on a TPU, and cannot be
    interrupted there.

    Args:
        directory: the run's output directory.

    Returns:
        Ends the watch when it is set.
    """
    global _watched
    _watched = True
    parent = os.getppid()
    path = directory / FILE
    over = threading.Event()

    def poll() -> None:
        while not path.exists():
            if over.wait(_POLL_S):
                return
            if os.getppid() != parent:
                os._exit(1)
        if not over.wait(GRACE_S):
            os._exit(1)

    threading.Thread(target=poll, name="failure-watch", daemon=True).start()
    return over
