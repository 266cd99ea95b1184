"""What is downloaded once, however many processes and replica threads ask for it, and is whole or not there."""

import errno
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from xlaexp.console import ANY_REPLICA
from xlaexp.files import sync_directory

log = logging.getLogger("xlaexp")

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_WRITING = frozenset({errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EEXIST, errno.ENOENT})


class DownloadError(Exception):
    """A download that has failed; the message says what can be done, in one line."""


def ensure(path: Path, what: str, by_hand: str, fetch: Callable[[Path], Path]) -> None:
    """Makes a path be there. What is there already is left as it is, and needs neither lock nor permission to write.

    Who asks while another downloads waits for it. A download that fails, or is killed, leaves nothing under the path,
    and the next one begins anew. Beside the path stays an empty lock file, ``.<name>.lock``.

    Args:
        path: a file or a directory.
        what: what it is, for messages.
        by_hand: how to get it there without a download, for messages ("put ... into ...").
        fetch: downloads into the empty directory that it is given, on the same file system, and returns the path in
            it of what has to be moved to ``path``.

    Raises:
        DownloadError: it cannot be downloaded, or not be written.
    """
    # Not Path.exists(): that raises where a directory on the way may not be read.
    if os.path.exists(path):
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path.with_name(f".{path.name}.lock"), what):
            if not os.path.exists(path):
                log.info("downloads %s into %s", what, path, extra=ANY_REPLICA)
                _download(path, fetch)
    except Exception as error:
        told = " ".join(f"{type(error).__name__}: {error}".split())
        raise DownloadError(f"{what} cannot be downloaded into {path}: {told}; {_advice(error, by_hand)}") from error


@contextmanager
def _locked(path: Path, what: str) -> Iterator[None]:
    # An object for each caller: those who hold one and the same, threads too, are all let in.
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        log.info("waits for %s, which another process or replica downloads; the lock is %s", what, path)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _download(path: Path, fetch: Callable[[Path], Path]) -> None:
    """Downloads beside the path, and moves it there when all of it is on disk. The caller holds the lock."""
    temporary = path.with_name(f".{path.name}.partial")
    if temporary.exists():  # of a process that was killed: the lock is ours, so that nobody writes there
        shutil.rmtree(temporary)
    try:
        temporary.mkdir()
        made = fetch(temporary)
        # A power failure must not leave the name of a file without its content.
        for file in [made] if made.is_file() else made.rglob("*"):
            if file.is_file():
                with file.open("rb") as written:
                    os.fsync(written.fileno())
        os.replace(made, path)
        sync_directory(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _advice(error: Exception, by_hand: str) -> str:
    number = error.errno if isinstance(error, OSError) else None
    if number in _NO_ROOM:
        return "make room there, or give another data.root"
    if number in _NO_WRITING:
        return f"give a data.root that can be written to, or {by_hand}"
    return f"without a network, {by_hand}"
