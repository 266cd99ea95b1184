"""``job.json``: what became of one job of an engine that keeps no ledger; a ledger is made of them in the end."""

import fcntl
import json
import logging
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

from xlaexp.config.errors import ConfigError
from xlaexp.files import write_json
from xlaexp.sweep.ledger import Entry, Ledger

FILE = "job.json"
LOCK = ".job.lock"
_KILLED = "its process was killed"


def read(directory: Path) -> Entry | None:
    """The entry that a job has left in its directory, or None."""
    try:
        return Entry(**json.loads((directory / FILE).read_text()))
    except FileNotFoundError:
        return None


def write(sweep: Path, entry: Entry) -> None:
    """Writes a job's entry into its directory."""
    write_json(sweep / entry.directory / FILE, asdict(entry))


def find(sweep: Path, directory: Path, number: int, overrides: list[str]) -> Entry:
    """The entry of a job, from an earlier attempt or new.

    Args:
        sweep: the sweep's directory.
        directory: the job's.
        number: of the job.
        overrides: its own.

    Raises:
        ConfigError: the directory is another job's.
    """
    relative = os.path.relpath(directory, sweep)
    ledger = Ledger.read(sweep)  # there is one where our own launcher has begun the sweep
    known = read(directory) or next((entry for entry in ledger.entries if entry.directory == relative), None)
    if known is None:
        return Entry(number, overrides, relative)
    if known.overrides != overrides:
        raise ConfigError(
            [
                f"hydra.sweep.dir: {directory} is the directory of another job ({' '.join(known.overrides)}); "
                "use another hydra.sweep.dir"
            ]
        )
    if known.state == "running":
        ledger.settle(known, _KILLED)
    return known


@contextmanager
def claimed(directory: Path) -> Iterator[None]:
    """Makes this process the only one that runs the job of a directory, until it ends in whatever way.

    Raises:
        BlockingIOError: another one runs it.
    """
    with (directory / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError:
            pass  # a shared file system may have no locks
        yield


def put_aside(sweep: Path, entry: Entry, output_subdir: str | None) -> None:
    """Keeps what a failed attempt left under ``attempts/``; what Hydra has written for this one stays."""
    directory = sweep / entry.directory
    aside = sweep / "attempts" / f".{uuid.uuid4().hex}"
    remains = aside / directory.name
    remains.mkdir(parents=True)
    logs = {Path(h.baseFilename) for h in logging.getLogger().handlers if isinstance(h, logging.FileHandler)}
    for path in directory.iterdir():
        if path in logs:  # open, and to be appended to
            shutil.copy2(path, remains)
            os.truncate(path, 0)
        elif path.name not in (LOCK, output_subdir):
            path.rename(remains / path.name)
    Ledger(sweep).put_aside(replace(entry, directory=os.path.relpath(remains, sweep)))
    aside.rmdir()


def collect(sweep: Path) -> Ledger:
    """Makes ``sweep.json`` from what the jobs have left.

    A job whose worker was killed had no time to say so; one that still runs, on a cluster, is left alone.
    """
    ledger = Ledger.read(sweep)
    entries = {entry.directory: entry for entry in ledger.entries}
    for path in sweep.rglob(FILE):
        entry = read(path.parent)
        if entry is None or entry.directory != os.path.relpath(path.parent, sweep):
            continue
        if entry.state == "running":
            try:
                with claimed(path.parent):
                    ledger.settle(entry, _KILLED)
                    write(sweep, entry)
            except BlockingIOError:
                pass
        entries[entry.directory] = entry
    ledger.entries = sorted(entries.values(), key=lambda entry: entry.number)
    ledger.write()
    return ledger
