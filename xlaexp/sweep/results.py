"""What a sweep came to: a table on the terminal, ``results.csv``, ``results.md`` and ``results.png``."""

import csv
import io
import logging
import math
import shlex
import time
from collections.abc import Sequence
from functools import cache

from rich.table import Table
from rich.text import Text

from xlaexp.console import console
from xlaexp.files import write_text
from xlaexp.sweep import plot
from xlaexp.sweep.ledger import Entry, Ledger

log = logging.getLogger("xlaexp")

_OBJECTIVE = "objective"
_FIXED = ("seconds", "attempts", "reason", "directory")
_LONG = 12  # characters of a number that is shortened
_STYLES = {"failed": "red", "pruned": "dim"}


def swept(entries: Sequence[Entry]) -> dict[str, list[str | None]]:
    """The parameters that differ between jobs, with the value of each job.

    Returns:
        For each parameter its values in the order of ``entries``, unquoted; None where a job does not set it.
    """
    jobs = [dict(map(_setting, entry.overrides)) for entry in entries]
    keys = dict.fromkeys(key for job in jobs for key in job)
    # What all jobs have in common was not swept.
    return {key: values for key in keys if len(set(values := [job.get(key) for job in jobs])) > 1}


def label(entries: Sequence[Entry], entry: Entry) -> str:
    """What tells a job from the others, on a line; all its overrides if it is the only one so far."""
    if len(entries) == 1:
        return " ".join(entry.overrides)
    position = next(position for position, other in enumerate(entries) if other is entry)
    values = {key: of_jobs[position] for key, of_jobs in swept(entries).items()}
    return " ".join(f"{key}={_brief(value)}" for key, value in values.items() if value is not None)


def ranked(entries: Sequence[Entry], mode: str) -> list[Entry]:
    """Jobs, the best first; then pruned ones, whose objective is not the final one; then those that have none.

    One that is not finite is worse than any number, and none is worse than a NaN.

    Args:
        entries: of the ledger.
        mode: "max" or "min": what is better.
    """
    sign = -1 if mode == "max" else 1

    def rank(entry: Entry) -> tuple[int, bool, bool, float]:
        value = entry.objective
        if value is None:
            return 2, False, False, 0.0
        nan = math.isnan(value)
        return int(entry.state == "pruned"), not math.isfinite(value), nan, 0.0 if nan else sign * value

    return sorted(entries, key=rank)


def rows(ledger: Ledger, mode: str, exact: bool = False) -> tuple[list[str], list[list[str]]]:
    """Columns and rows, in the order of :func:`ranked`.

    Args:
        ledger: of the sweep.
        mode: "max" or "min": what is better.
        exact: whether a program that reads an objective gets the very same float; else it is short.
    """
    parameters = swept(ledger.entries)
    # The first of several objectives is the one that is called so.
    others = list(dict.fromkeys(name for entry in ledger.entries for name in list(entry.objectives)[1:]))
    columns = ["job", *parameters, "state", _OBJECTIVE, *others, *_FIXED]
    values = {entry.number: [v[i] for v in parameters.values()] for i, entry in enumerate(ledger.entries)}
    table = []
    for entry in ranked(ledger.entries, mode):
        ended = time.time() if entry.state == "running" else entry.ended
        seconds = ended - entry.started if ended and entry.started else None
        table.append(
            [
                str(entry.number),
                *("" if value is None else value if exact else _brief(value) for value in values[entry.number]),
                entry.state,
                *(_number(value, exact) for value in (entry.objective, *map(entry.objectives.get, others))),
                "" if seconds is None else f"{seconds:.1f}",
                str(entry.attempts),
                entry.reason or "",
                entry.directory,
            ]
        )
    return columns, table


def write(ledger: Ledger, mode: str) -> None:
    """Writes ``results.csv``, ``results.md`` and ``results.png`` into the sweep's directory."""
    columns, table = rows(ledger, mode, exact=True)
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows(table)
    write_text(ledger.directory / "results.csv", text.getvalue())
    columns, table = rows(ledger, mode)
    lines = [columns, ["---"] * len(columns), *table]
    write_text(ledger.directory / "results.md", "".join(f"| {' | '.join(map(_cell, line))} |\n" for line in lines))
    try:
        _plot(ledger, mode)
    except Exception as error:  # a picture is no reason to lose a sweep
        log.warning("%s could not be drawn: %s: %s", plot.FILE, type(error).__name__, error)


def show(ledger: Ledger, mode: str) -> None:
    """Prints the table, what is missing, and the command that opens TensorBoard where jobs have written for it."""
    columns, table = rows(ledger, mode)
    left_out = {"attempts", "directory"} | ({"reason"} if not any(e.reason for e in ledger.entries) else set())
    shown = [column for column in columns if column not in left_out]
    # Text, not str: values such as [a,b] are no markup.
    view = Table()
    for column in shown:
        view.add_column(Text(column), overflow="fold")
    for row in table:
        values = dict(zip(columns, row, strict=True))
        view.add_row(*(Text(values[column]) for column in shown), style=_STYLES.get(values["state"]))
    # Not the table's title, which would be folded to its width.
    console.print(Text(f"Sweep {ledger.directory}", style="italic"), soft_wrap=True)
    console.print(view)
    console.print(_counts(ledger.entries))
    if any((ledger.directory / entry.directory / "tb").is_dir() for entry in ledger.entries):
        console.print(f"tensorboard --logdir {shlex.quote(str(ledger.directory))}", soft_wrap=True, markup=False)
    left = sum(not entry.finished for entry in ledger.entries)
    if left and not any(entry.state == "running" for entry in ledger.entries):
        where = shlex.quote(f"hydra.sweep.dir={ledger.directory}")
        console.print(f"The same command with {where} runs what is left: {left} of them.", soft_wrap=True, markup=False)


def _plot(ledger: Ledger, mode: str) -> None:
    done = [e for e in ranked(ledger.entries, mode) if e.state == "done" and math.isfinite(e.objective or 0.0)]
    best = done[0] if done else None
    title = f"{ledger.directory.name}\n{_counts(ledger.entries)}"
    metric = _OBJECTIVE
    if best is not None:
        title += f"; best: job {best.number}, {_number(best.objective)}"
        metric = next(iter(best.objectives), metric)
    drawn = plot.figure(ledger.entries, swept(ledger.entries), best, title, metric)
    if drawn is not None:
        plot.write(ledger.directory, drawn)


def _counts(entries: Sequence[Entry]) -> str:
    states = [entry.state for entry in entries]
    return f"{len(states)} jobs: " + (", ".join(f"{states.count(s)} {s}" for s in dict.fromkeys(states)) or "none")


def _number(value: float | None, exact: bool = False) -> str:
    if value is None:
        return ""
    return repr(value) if exact else f"{value:.6g}"


def _brief(value: str) -> str:
    """A number that was drawn from an interval, without the digits that nobody reads."""
    try:
        return value if len(value) <= _LONG else f"{float(value):.6g}"
    except ValueError:
        return value


def _cell(value: str) -> str:
    return value.replace("|", "\\|").replace("\n", " ")


@cache
def _setting(override: str) -> tuple[str, str]:
    """Key and value of an override: of ``+key=value`` and ``key@package=value``, too."""
    key, _, value = override.partition("=")
    if key.startswith("~"):
        return key[1:], "(removed)"
    if value[:1] in ("'", '"'):
        from hydra.core.override_parser.overrides_parser import OverridesParser

        value = str(OverridesParser.create().parse_override(f"key={value}").value())
    return key.lstrip("+"), value
