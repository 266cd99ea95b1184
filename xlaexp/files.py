"""Files that are whole or not there."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


def write_atomic(path: Path, write: Callable[[Path], object]) -> None:
    """Writes a file beside its place, and moves it there when it is on disk.

    Args:
        path: the final place; what is there stays until the new file is complete.
        write: gets the path of the file to write.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_directory(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def sync_directory(directory: Path) -> None:
    """Makes new names in a directory survive a power failure."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: Path, content: Any) -> None:
    """Writes JSON for people and programs, atomically."""
    write_text(path, json.dumps(content, indent=2) + "\n")


def write_text(path: Path, text: str) -> None:
    """Writes text as it is (no newline is translated), atomically."""
    write_atomic(path, lambda file: file.write_bytes(text.encode()))
