"""A user's callback of a run."""

import json
from pathlib import Path

from xlaexp.callbacks import Callback, Run, Scalars
from xlaexp.result import Result


class Watcher(Callback):
    """A callback of a run; leaves what it has seen."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "seen.json"
        self._seen: list[str] = []

    def start(self, run: Run) -> None:
        self._seen.append("start")

    def log(self, step: int, scalars: Scalars) -> None:
        self._seen.append(f"log {step}")

    def evaluate(self, step: int, scalars: Scalars) -> None:
        self._seen.append(f"evaluate {step}")

    def checkpoint(self, step: int) -> None:
        self._seen.append(f"checkpoint {step}")

    def end(self, result: Result | None) -> None:
        self._path.write_text(json.dumps([*self._seen, "end"]))
