"""``metrics.csv``: one row each time something is logged."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from xlaexp.callbacks import Callback, Run, Scalars
from xlaexp.files import write_text
from xlaexp.registry import TRACKERS


@TRACKERS.register("csv")
class CSVTracker(Callback):
    """Appends a row a reading and a row an evaluation; a new scalar adds a column.

    Args:
        directory: output directory of the run.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / "metrics.csv"
        self._rows = 0
        self._columns = ["step"]

    def restore(self, state: Mapping[str, Any]) -> None:
        """Leaves out what was written after the checkpoint."""
        self._rows = state["rows"]

    def start(self, run: Run) -> None:
        """Goes on with a file that is there, which may have more rows than the checkpoint knows of."""
        if not self._path.exists():
            self._rows = 0
            return
        with self._path.open(newline="") as file:
            rows = list(csv.DictReader(file))[: self._rows]
        self._columns = list(rows[0]) if rows else ["step"]
        self._rows = len(rows)
        self._rewrite(rows)

    def state(self) -> Mapping[str, Any]:
        """How many rows there are."""
        return {"rows": self._rows}

    def log(self, step: int, scalars: Scalars) -> None:
        """Writes a row."""
        self._rows += 1
        if new := [name for name in scalars if name not in self._columns]:
            self._columns += new
            rows: list[dict[str, str]] = []
            if self._path.exists():
                with self._path.open(newline="") as file:
                    rows = list(csv.DictReader(file))
            self._rewrite(rows)
        with self._path.open("a", newline="") as file:
            csv.DictWriter(file, self._columns).writerow({"step": step, **scalars})

    def evaluate(self, step: int, scalars: Scalars) -> None:
        """Writes a row."""
        self.log(step, scalars)

    def _rewrite(self, rows: Sequence[Mapping[str, str]]) -> None:
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, self._columns)
        writer.writeheader()
        writer.writerows(rows)
        write_text(self._path, text.getvalue())
