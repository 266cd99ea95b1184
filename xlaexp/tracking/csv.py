"""``metrics.csv``: one row each time something is logged."""

import csv
import io
from pathlib import Path

from xlaexp.callbacks import Callback, Scalars
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
        self._columns = ["step"]

    def log(self, step: int, scalars: Scalars) -> None:
        """Writes a row."""
        if new := [name for name in scalars if name not in self._columns]:
            self._columns += new
            rows: list[dict[str, str]] = []
            if self._path.exists():
                with self._path.open(newline="") as file:
                    rows = list(csv.DictReader(file))
            text = io.StringIO(newline="")
            writer = csv.DictWriter(text, self._columns)
            writer.writeheader()
            writer.writerows(rows)
            write_text(self._path, text.getvalue())
        with self._path.open("a", newline="") as file:
            csv.DictWriter(file, self._columns).writerow({"step": step, **scalars})

    def evaluate(self, step: int, scalars: Scalars) -> None:
        """Writes a row."""
        self.log(step, scalars)
