"""``results.png``: the objective of a sweep's jobs against each parameter that was swept."""

import logging
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xlaexp.files import write_atomic
from xlaexp.sweep.ledger import Entry

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FILE = "results.png"
UNSET = "(not set)"

_COLUMNS = 3
_WIDE = 12
"""Categories beyond which a panel gets a row of its own."""
_MOST_LABELS = 60
_LONGEST_LABEL = 24
_FITS = 56
"""Characters that fit under a panel beside each other."""
_LOG_SPAN = 10.0
"""Below this ratio of greatest and least value an axis is linear, beyond its square logarithmic."""
_APART = 0.08
"""Distance between labels as a fraction of the axis, where every value has one."""
_MARGIN = 0.07
_SPREAD = 0.25
"""How far from its category's position a point may stand; the next category is at 1."""
_BOTTOM = 0.035
"""Where jobs without a value stand, as a fraction of the axis."""


@dataclass(frozen=True)
class _Group:
    """Jobs that are drawn alike."""

    label: str
    entries: Sequence[Entry]
    marker: str
    colour: str
    at_bottom: bool = False


def figure(
    entries: Sequence[Entry], swept: Mapping[str, Sequence[str | None]], best: Entry | None, title: str, metric: str
) -> "Figure | None":
    """A panel for each swept parameter, or one over the jobs' numbers where none was swept.

    A parameter whose values are all numbers has a numeric axis, logarithmic where that keeps positive values further
    apart; any other has a position for each value, and jobs of equal value stand a little beside each other. Jobs
    that failed, or whose objective is not finite, are crosses at the bottom.

    Args:
        entries: jobs.
        swept: for each parameter the jobs' values, in the order of the jobs; None where a job does not set it.
        best: the job to mark.
        title: of the whole figure.
        metric: name of the objective.

    Returns:
        The figure, or None where no job has a finite objective.
    """
    # Imported here: a sweep is to start at once. Not pyplot, which keeps state and looks for a display.
    from matplotlib.figure import Figure

    logging.getLogger("matplotlib").setLevel(logging.WARNING)
    groups = _groups(entries)
    if all(group.at_bottom for group in groups):
        return None
    panels = dict(swept) or {"job": [str(entry.number) for entry in entries]}
    most = max([len(set(values)) for values in panels.values() if _numbers(values) is None], default=0)
    columns = 1 if most > _WIDE else min(_COLUMNS, len(panels))
    rows = math.ceil(len(panels) / columns)
    width = max(columns * 4.2, min(16.0, most * 0.3), 5.5)
    drawn = Figure(figsize=(width, rows * 3.6 + 0.6), dpi=120, layout="constrained")
    drawn.suptitle(_plain(title), fontsize=10)
    first: Axes | None = None
    for index, (name, values) in enumerate(panels.items()):
        axes = drawn.add_subplot(rows, columns, index + 1, sharey=first)
        first = first or axes
        places = _scale(axes, values)
        _draw(axes, groups, {entry.number: place for entry, place in zip(entries, places, strict=True)}, best)
        axes.set_xlabel(_plain(_short(name, 40)))
        if index % columns == 0:
            axes.set_ylabel(_plain(metric))
        axes.grid(alpha=0.3)
    assert first is not None
    first.margins(y=0.12)
    handles, labels = first.get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=8, frameon=False)
    return drawn


def write(directory: Path, drawn: "Figure") -> None:
    """Writes ``results.png`` into the sweep's directory, atomically."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(drawn)
    write_atomic(directory / FILE, lambda file: canvas.print_figure(file, format="png"))


def _groups(entries: Sequence[Entry]) -> list[_Group]:
    """Those of them that have jobs; jobs that have not ended are not drawn."""
    finite = [e for e in entries if e.objective is not None and math.isfinite(e.objective)]
    odd = [e for e in entries if e.objective is not None and not math.isfinite(e.objective)]
    groups = [
        _Group("done", [e for e in finite if e.state != "pruned"], "o", "tab:blue"),
        _Group("pruned", [e for e in finite if e.state == "pruned"], "v", "tab:grey"),
        _Group("failed", [e for e in entries if e.state == "failed" and e.objective is None], "x", "tab:red", True),
        _Group("not finite", odd, "x", "tab:orange", True),
    ]
    return [group for group in groups if group.entries]


def _draw(axes: "Axes", groups: Sequence[_Group], places: Mapping[int, float], best: Entry | None) -> None:
    size = 30.0 if len(places) <= 100 else 12.0
    for group in groups:
        style: dict[str, Any] = {"s": size, "marker": group.marker, "c": group.colour, "alpha": 0.7}
        if group.at_bottom:  # x in the axis' own units, y as a fraction of its height
            style["transform"] = axes.get_xaxis_transform()
        heights = [_BOTTOM if group.at_bottom else float(entry.objective or 0.0) for entry in group.entries]
        axes.scatter([places[entry.number] for entry in group.entries], heights, label=group.label, **style)
    if best is not None and best.objective is not None and math.isfinite(best.objective):
        place = [places[best.number]]
        axes.scatter(place, [best.objective], s=160, marker="*", c="gold", edgecolors="black", label="best", zorder=3)


def _scale(axes: "Axes", values: Sequence[str | None]) -> Sequence[float]:
    """Sets up the axis of a parameter, and says where on it each job stands."""
    from matplotlib.ticker import MaxNLocator

    numbers = _numbers(values)
    if numbers is not None:
        ticks = sorted(set(numbers))
        logarithmic = _logarithmic(ticks)
        if logarithmic:
            axes.set_xscale("log")
        # Set by hand: matplotlib leaves out the jobs at the bottom, because their heights are no values.
        axes.set_xlim(*_limits(ticks[0], ticks[-1], logarithmic))
        if len(ticks) <= _WIDE and _least_gap(ticks, logarithmic) >= _APART:
            axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            axes.minorticks_off()
        elif all(number.is_integer() for number in numbers) and not logarithmic:
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        return numbers
    names = [UNSET if value is None else value for value in values]
    of = Counter(names)
    known = {name: position for position, name in enumerate(of)}
    labels = [_plain(_short(name)) for name in known]
    step = math.ceil(len(labels) / _MOST_LABELS)
    tilted = len(labels) * max(map(len, labels)) > _FITS
    turn: dict[str, Any] = {"rotation": 40, "ha": "right", "rotation_mode": "anchor"} if tilted else {}
    axes.set_xticks(range(0, len(known), step), labels[::step], fontsize=8 if len(labels) <= 30 else 6, **turn)
    axes.set_xlim(-0.6, len(known) - 0.4)
    seen: Counter[str] = Counter()
    places = []
    for name in names:
        offset = 0.0 if of[name] == 1 else _SPREAD * (2 * seen[name] / (of[name] - 1) - 1)
        seen[name] += 1
        places.append(known[name] + offset)
    return places


def _logarithmic(ticks: Sequence[float]) -> bool:
    """Whether sorted values are easier to tell apart by their logarithms."""
    if ticks[0] <= 0 or ticks[-1] < _LOG_SPAN * ticks[0]:
        return False
    return ticks[-1] >= _LOG_SPAN**2 * ticks[0] or _least_gap(ticks, True) > _least_gap(ticks, False)


def _least_gap(ticks: Sequence[float], logarithmic: bool) -> float:
    """The least distance of sorted values on an axis, as a fraction of what they span; 1 where there are no two."""
    places = [math.log(tick) for tick in ticks] if logarithmic else ticks
    return min((after - before for before, after in pairwise(places)), default=1.0) / ((places[-1] - places[0]) or 1.0)


def _limits(least: float, most: float, logarithmic: bool) -> tuple[float, float]:
    """The ends of an axis, with a margin."""
    if logarithmic:
        factor = (most / least) ** _MARGIN
        return least / factor, most * factor
    margin = _MARGIN * (most - least) or 0.5
    return least - margin, most + margin


def _numbers(values: Sequence[str | None]) -> list[float] | None:
    """The values as finite numbers, or None where one is not."""
    try:
        numbers = [float(value) for value in values if value is not None]
    except ValueError:
        return None
    return numbers if len(numbers) == len(values) and all(map(math.isfinite, numbers)) else None


def _short(text: str, longest: int = _LONGEST_LABEL) -> str:
    """A text cut in its middle: paths differ at their end, names at their beginning."""
    text = " ".join(text.split())
    head = longest // 3
    return text if len(text) <= longest else f"{text[:head]}…{text[head + 1 - longest :]}"


def _plain(text: str) -> str:
    """A text that is no formula for matplotlib."""
    return text.replace("$", r"\$")
