"""Files that are whole or not there."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any


def write_atomic(path: Path, write: Callable[[IO[bytes]], None]) -> None:
    """Writes a file beside its place, and moves it there when it is on disk.

    Args:
        path: the final place; what is there stays until the new file is complete.
        write: gets the open file.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, content: Any) -> None:
    """Writes JSON for people and programs, atomically."""
    text = json.dumps(content, indent=2) + "\n"
    write_atomic(path, lambda file: (file.write(text.encode()), None)[1])
