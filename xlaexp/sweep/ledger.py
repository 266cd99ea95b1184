"""``sweep.json``: what a sweep consists of and what became of each job, on disk at every moment."""

import fcntl
import json
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Literal

from omegaconf import DictConfig, OmegaConf

from xlaexp.files import write_json
from xlaexp.result import FILE as RESULT
from xlaexp.result import Result

FILE = "sweep.json"
_WAIT_S = 30.0
_SHORT_WAIT_S = 1.0

State = Literal["queued", "running", "done", "pruned", "failed"]


@dataclass
class Entry:
    """One job."""

    number: int
    """Its ``hydra.job.num``."""
    overrides: list[str]
    """What is its own in the sweep."""
    directory: str
    """Its output directory, relative to the sweep's."""
    state: State = "queued"
    attempts: int = 0
    """How often it was started, in this sweep and in those that were resumed."""
    objective: float | None = None
    objectives: dict[str, float] = field(default_factory=dict)
    """All objectives by name, ``objective`` being the first one."""
    reason: str | None = None
    """Why it failed."""
    started: float | None = None
    """Unix time."""
    ended: float | None = None
    """Unix time."""

    def begin(self) -> None:
        """Says that an attempt begins now."""
        self.attempts += 1
        self.state, self.started, self.ended, self.reason = "running", time.time(), None, None

    @property
    def finished(self) -> bool:
        """Whether it is not to be run again."""
        return self.state in ("done", "pruned")


@dataclass
class Ledger:
    """All jobs of a sweep.

    Attributes:
        directory: of the sweep.
        entries: in the order of their numbers.
    """

    directory: Path
    entries: list[Entry] = field(default_factory=list)

    @classmethod
    def read(cls, directory: Path) -> "Ledger":
        """The ledger of a directory as it stands, of a sweep that runs too; an empty one where there is none."""
        path = directory / FILE
        if not path.exists():
            return cls(directory)
        return cls(directory, [Entry(**entry) for entry in json.loads(path.read_text())["jobs"]])

    def recover(self) -> None:
        """What was running when the sweep was killed is done if it has left a result, else it is queued again.

        Only for the one that owns the directory: in the ledger of a sweep that runs, running means just that.
        """
        for entry in self.entries:
            if entry.state == "running":
                self.put_back(entry, "its sweep was killed")

    def write(self) -> None:
        """Writes it, atomically."""
        write_json(self.directory / FILE, {"jobs": [asdict(entry) for entry in self.entries]})

    def find(self, overrides: Sequence[Sequence[str]]) -> list[Entry | None]:
        """The entries of jobs, by their overrides; the second of two equal jobs is another than the first."""
        known = dict(self._keyed(self.entries))
        asked: Counter[tuple[str, ...]] = Counter()
        found = []
        for job in overrides:
            key = tuple(job)
            found.append(known.get((key, asked[key])))
            asked[key] += 1
        return found

    @staticmethod
    def _keyed(entries: Sequence[Entry]) -> Iterator[tuple[tuple[tuple[str, ...], int], Entry]]:
        seen: Counter[tuple[str, ...]] = Counter()
        for entry in entries:
            key = tuple(entry.overrides)
            yield (key, seen[key]), entry
            seen[key] += 1

    def settle(self, entry: Entry, reason: str) -> bool:
        """Says how a job ended: done or pruned where it left a result, else failed for ``reason``.

        Returns:
            Whether it left a result.
        """
        directory = self.directory / entry.directory
        entry.ended = time.time()
        try:
            result = Result.read(directory)
            entry.ended = (directory / RESULT).stat().st_mtime  # a sweep that was killed learns of it later
            entry.objective, entry.objectives = result.objective, dict(result.objectives)
            entry.state, entry.reason = "pruned" if result.pruned else "done", None
        except FileNotFoundError:
            entry.state, entry.reason = "failed", reason
        return entry.finished

    def put_back(self, entry: Entry, reason: str) -> None:
        """Says that a job was ended before its time, and has to be run again if it has left no result."""
        if not self.settle(entry, reason):
            entry.state, entry.ended = "queued", None

    def put_aside(self, entry: Entry) -> None:
        """Makes room for another attempt: what a failed one left is kept under ``attempts/``, packed.

        Packed, because TensorBoard would show its event file as another run.
        """
        import shutil

        path = self.directory / entry.directory
        if not path.exists():
            return
        aside = self.directory / "attempts"
        aside.mkdir(exist_ok=True)
        number = 1
        while (aside / f"{path.name}.{number}.tar.gz").exists():
            number += 1
        archive = shutil.make_archive(str(aside / f".{path.name}.{number}"), "gztar", path)
        os.replace(archive, aside / f"{path.name}.{number}.tar.gz")
        shutil.rmtree(path)


def mode_of(config: DictConfig) -> str:
    """Whether more or less of the first objective is better: "max" or "min"."""
    mode = OmegaConf.select(config, "objective.mode", default="max")
    return str(mode if isinstance(mode, str) else mode[0])


@contextmanager
def owned(directory: Path) -> Iterator[None]:
    """Makes this process the only one that runs jobs in a sweep directory, until it ends in whatever way.

    Raises:
        BlockingIOError: another sweep runs there, or jobs of a killed one do not end.
    """
    # Jobs of a sweep that was killed end within a second; until then they hold the second lock, and the first one,
    # too, if they were forked from the sweep itself.
    with (directory / ".sweep.lock").open("w") as lock:
        _lock(lock, _SHORT_WAIT_S)
        with (directory / ".jobs.lock").open("w") as jobs:
            _lock(jobs, _WAIT_S)
        yield


def in_use(directory: Path) -> bool:
    """Whether a sweep runs in a directory."""
    try:
        with (directory / ".sweep.lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except FileNotFoundError:
        return False
    except OSError:
        return True


def _lock(file: IO[str], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def hold(directory: Path) -> int:
    """Tells a sweep that is resumed that a job of this one still runs: until this process and its children end."""
    descriptor = os.open(directory / ".jobs.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor
