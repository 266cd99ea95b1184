"""What a sweep came to: a table on the terminal, ``results.csv`` and ``results.md``."""

import csv
import io
import math

from rich.table import Table

from xlaexp.console import console
from xlaexp.files import write_text
from xlaexp.sweep.ledger import Entry, Ledger

_FIXED = ("state", "objective", "seconds", "attempts", "reason", "directory")


def rows(ledger: Ledger, mode: str) -> tuple[list[str], list[list[str]]]:
    """Columns and rows, the best job first and those without an objective last.

    Args:
        ledger: of the sweep.
        mode: "max" or "min": what is better.
    """
    parsed = {e.number: {_key(o): o.partition("=")[2] for o in e.overrides} for e in ledger.entries}
    keys = dict.fromkeys(key for values in parsed.values() for key in values)
    # What all jobs have in common was not swept.
    swept = [key for key in keys if len({values.get(key) for values in parsed.values()}) > 1]
    columns = ["job", *swept, *_FIXED]
    sign = -1 if mode == "max" else 1

    def rank(entry: Entry) -> float:
        value = entry.objective
        return math.inf if value is None or math.isnan(value) else sign * value

    table = []
    for entry in sorted(ledger.entries, key=rank):
        seconds = entry.ended - entry.started if entry.ended and entry.started else None
        table.append(
            [
                str(entry.number),
                *(parsed[entry.number].get(key, "") for key in swept),
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
    write_text(ledger.directory / "results.csv", text.getvalue())
    lines = [columns, ["---"] * len(columns), *table]
    write_text(ledger.directory / "results.md", "".join(f"| {' | '.join(map(_cell, line))} |\n" for line in lines))


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


def _cell(value: str) -> str:
    return value.replace("|", "\\|").replace("\n", " ")


def _key(override: str) -> str:
    return override.partition("=")[0].lstrip("+~")
