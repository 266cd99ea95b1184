"""Checkpoints on disk: whole or not there, written beside the training, verified before they are used.

Everything in them is on the CPU, and loads with ``torch.load(path, weights_only=True)``. They are zip archives, whose
format has a checksum (CRC-32) of every part.
"""

import logging
import os
import queue
import re
import shutil
import threading
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from xlaexp.failure import brief
from xlaexp.files import sync_directory, write_atomic

log = logging.getLogger("xlaexp")

DIRECTORY = "checkpoints"
_NAME = re.compile(r"step-(\d+)\.pt")


class CheckpointError(Exception):
    """A checkpoint cannot be read or written; the message names the file."""


class Store:
    """``step-<number>.pt``, and beside the newest of them ``last.pt`` and ``best.pt``.

    One state at a time is written, in a thread of its own; a second one waits for the first, so that no more than
    one copy of the state is in memory.

    Args:
        directory: output directory of the run.
        keep_last: newest checkpoints that are kept; the best one is another name of its file, and stays.
    """

    def __init__(self, directory: Path, keep_last: int) -> None:
        self._directory = directory / DIRECTORY
        try:
            self._directory.mkdir(exist_ok=True)
        except OSError as error:
            raise CheckpointError(f"{self._directory} cannot be made: {error}") from error
        for left in self._directory.glob(".*.pt.*"):  # of a process that was killed while it wrote
            left.unlink(missing_ok=True)
        self._keep = keep_last
        self._waiting: queue.Queue[tuple[Mapping[str, Any], int, bool] | None] = queue.Queue(1)
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._write_all, name="checkpoint-writer", daemon=True)
        self._thread.start()

    def save(self, content: Mapping[str, Any], step: int, best: bool) -> None:
        """Begins to write a state, as soon as the one before is on disk.

        Args:
            content: tensors on the CPU and plain data, for the store alone: it frees the tensors when they are written.
            step: names the file.
            best: whether it becomes ``best.pt``, too.

        Raises:
            CheckpointError: the one before could not be written.
        """
        self.finish()
        self._waiting.put((content, step, best))

    def finish(self) -> None:
        """Waits until what was begun is on disk.

        Raises:
            CheckpointError: it could not be written.
        """
        self._waiting.join()
        if self._error is not None:
            # In one line: torch adds a trace of its C++ functions to what the system has said.
            error, self._error = self._error, None
            raise CheckpointError(
                f"a checkpoint could not be written into {self._directory}, where {_free(self._directory)} are free: "
                f"{brief(error)}; those written before are intact. Make room and go on with resume=auto, or "
                "write elsewhere with hydra.run.dir=..."
            ) from error

    def close(self) -> None:
        """Ends the thread, after what was begun has been written; once only.

        Raises:
            CheckpointError: it could not be written.
        """
        if not self._thread.is_alive():
            return
        try:
            self.finish()
        finally:
            self._waiting.put(None)
            self._thread.join()

    def _write_all(self) -> None:
        while (job := self._waiting.get()) is not None:
            try:
                self._write(*job)
            except Exception as error:
                self._error = error
            finally:
                _release(job[0])
                del job
                self._waiting.task_done()

    def _write(self, content: Mapping[str, Any], step: int, best: bool) -> None:
        path = self._directory / f"step-{step:08}.pt"
        # By its path: an open file is written through Python, at a third of the speed.
        write_atomic(path, lambda file: torch.save(content, file))
        for name in ("last.pt", "best.pt") if best else ("last.pt",):
            self._name(path, name)
        sync_directory(self._directory)
        for old in sorted(self._directory.glob("step-*.pt"), reverse=True)[self._keep :]:
            old.unlink(missing_ok=True)

    def _name(self, path: Path, name: str) -> None:
        """Makes ``name`` another name of a file, in one step."""
        new = self._directory / f".{name}.{os.getpid()}"
        new.unlink(missing_ok=True)
        os.link(path, new)
        new.replace(self._directory / name)


def _release(content: Mapping[str, Any]) -> None:
    """Frees the memory of all tensors.

    torch.save (2.9) leaves its pickler, which knows all of them, in a reference cycle: several copies of the state
    would wait for the garbage collector.
    """
    for leaf in tree_leaves(content):
        if isinstance(leaf, torch.Tensor) and leaf.untyped_storage().resizable():
            leaf.untyped_storage().resize_(0)


def _free(directory: Path) -> str:
    return f"{shutil.disk_usage(directory).free / 2**20:,.0f} MiB"


def load(path: Path) -> dict[str, Any]:
    """The content of a checkpoint, whose checksums have been verified.

    Raises:
        CheckpointError: it is not there, or damaged.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            if bad := archive.testzip():
                raise CheckpointError(f"{path} is damaged: the checksum of {bad} in it does not fit")
        content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except CheckpointError:
        raise
    except FileNotFoundError:
        raise CheckpointError(f"there is no checkpoint {path}") from None
    except Exception as error:
        raise CheckpointError(f"{path} is damaged: {type(error).__name__}: {error}") from error
    if "model" not in content or "step" not in content:
        raise CheckpointError(f"{path} is no checkpoint of xlaexp")
    return content


def newest(directory: Path) -> tuple[Path, dict[str, Any]] | None:
    """The newest good checkpoint of a run; None if it has none at all.

    Args:
        directory: output directory of the run.

    Raises:
        CheckpointError: there are some, and none of them is good.
    """
    problems = []
    for path in _candidates(directory / DIRECTORY):
        try:
            content = load(path)
        except CheckpointError as error:
            problems.append(str(error))
            continue
        for problem in problems:
            log.warning("%s; %s is used instead", problem, path.name)
        return path, content
    if problems:
        raise CheckpointError("\n".join(problems))
    return None


def _candidates(directory: Path) -> Iterator[Path]:
    yield from sorted((path for path in directory.glob("step-*.pt") if _NAME.fullmatch(path.name)), reverse=True)
    if (best := directory / "best.pt").exists():  # older than all of them, or the same as one
        yield best
