"""What a sweep came to: a table on the terminal, ``results.csv`` and ``results.md``."""

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from xlaexp.console import console
from xlaexp.files import write_atomic
from xlaexp.sweep.ledger import Entry, Ledger

_FIXED = ("job", "state", "objective", "seconds", "attempts", "reason", "directory")


def rows(ledger: Ledger, mode: str) -> tuple[list[str], list[list[str]]]:
    """Columns and rows, the best job first and those without an objective last.

    Args:
        ledger: of the sweep.
        mode: "max" or "min": what is better.
    """
    parsed = [{_key(override): override.partition("=")[2] for override in e.overrides} for e in ledger.entries]
    keys = dict.fromkeys(key for values in parsed for key in values)
    # What all jobs have in common was not swept.
    swept = [key for key in keys if len({values.get(key) for values in parsed}) > 1]
    columns = ["job", *swept, *_FIXED[1:]]
    sign = -1 if mode == "max" else 1

    def rank(entry: Entry) -> float:
        value = entry.objective
        return math.inf if value is None or math.isnan(value) else sign * value

    table = []
    for entry in sorted(ledger.entries, key=rank):
        values = {_key(override): override.partition("=")[2] for override in entry.overrides}
        seconds = entry.ended - entry.started if entry.ended and entry.started else None
        table.append(
            [
                str(entry.number),
                *(values.get(key, "") for key in swept),
                entry.state,
                "" if entry.objective is None else f"{entry.objective:.6g}",
                "" if seconds is None else f"{seconds:.1f}",
                str(entry.attempts),
                entry.reason or "",
                entry.directory,
            ]
        )
    return columns, table


def write(ledger: Ledger, mode: str) -> None:
    """Writes ``results.csv`` and ``results.md`` into the sweep's directory."""
    columns, table = rows(ledger, mode)
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows(table)
    _write(ledger.directory / "results.csv", text.getvalue())
    lines = [columns, ["---"] * len(columns), *table]
    _write(ledger.directory / "results.md", "".join(f"| {' | '.join(map(_cell, line))} |\n" for line in lines))


def show(ledger: Ledger, mode: str) -> None:
    """Prints the table, and what is missing."""
    columns, table = rows(ledger, mode)
    shown = [column for column in columns if column not in ("attempts", "directory")]
    view = Table(title=f"Sweep {ledger.directory}", title_justify="left")
    for column in shown:
        view.add_column(column, overflow="fold")
    for row in table:
        values = dict(zip(columns, row, strict=True))
        failed = values["state"] == "failed"
        view.add_row(*(values[column] for column in shown), style="red" if failed else None)
    console.print(view)
    states = [entry.state for entry in ledger.entries]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    console.print(f"{len(states)} jobs: {counts or 'none'}")


def _write(path: Path, text: str) -> None:
    write_atomic(path, lambda file: (file.write(text.encode()), None)[1])


def _cell(value: str) -> str:
    return value.replace("|", "\\|").replace("\n", " ")


def _key(override: str) -> str:
    return override.partition("=")[0].lstrip("+~")


def best(entries: Sequence[Entry], mode: str) -> Entry | None:
    """The best job that is done, or None."""
    done = [e for e in entries if e.objective is not None and not math.isnan(e.objective)]
    return (max if mode == "max" else min)(done, key=lambda e: e.objective or 0.0, default=None)
