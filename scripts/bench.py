"""What xlaexp costs: steps per second against a loop written by hand, sweeps, and checkpoints.

Both loops train the same model on the same data, each in a process of its own, in turn; the table gives medians over
the repeats and their ratio. For sweeps and checkpoints see bench_sweep.py and bench_checkpoint.py. Runs on XLA:CPU.

usage: .venv/bin/python scripts/bench.py [--repeats N] [--epochs N] [--only TEXT] [--json FILE]
"""

import argparse
import json
import os
import platform
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import bench_checkpoint
import bench_commands
import bench_sweep
from rich.console import Console
from rich.table import Table

BATCH = 64  # over all replicas


@dataclass(frozen=True)
class Cell:
    """One row of the table."""

    strategy: str
    replicas: int
    loader: str

    @property
    def name(self) -> str:
        return f"{self.strategy}, {self.replicas} x {self.loader}"


CELLS = (
    Cell("sync", 1, "plain"),
    Cell("loader", 1, "mp_device_loader"),
    Cell("barrier", 2, "plain"),
    Cell("loader", 2, "mp_device_loader"),
    Cell("barrier", 4, "plain"),
    Cell("loader", 4, "mp_device_loader"),
)


def by_hand(cell: Cell, epochs: int) -> float:
    """Steps per second of the hand-written loop."""
    return bench_commands.by_hand(
        replicas=cell.replicas, loader=cell.loader, batch_size=BATCH // cell.replicas, epochs=epochs
    ).steps_per_s


def xlaexp(cell: Cell, epochs: int) -> float:
    """Steps per second of xlaexp."""
    device = ["device=multi", f"device.replicas={cell.replicas}"] if cell.replicas > 1 else ["device=single"]
    loader = [f"loader={cell.loader}", f"loader.batch_size={BATCH // cell.replicas}"]
    return bench_commands.xlaexp(BATCH, *device, *loader, f"train.epochs={epochs}", "train.log_every=220").steps_per_s


def compare(cells: Sequence[Cell], repeats: int, epochs: int) -> dict[str, dict[str, list[float]]]:
    """Steps per second of both contestants in each repeat."""
    results: dict[str, dict[str, list[float]]] = {c.name: {"by hand": [], "xlaexp": []} for c in cells}
    for repeat in range(repeats):
        for cell in cells:
            contestants = {"by hand": by_hand, "xlaexp": xlaexp}
            # Each goes first in half of the repeats.
            for name in sorted(contestants, reverse=bool(repeat % 2)):
                results[cell.name][name].append(contestants[name](cell, epochs))
            print(f"repeat {repeat + 1}: {cell.name}", file=sys.stderr)
    return results


def table(results: Mapping[str, Mapping[str, Sequence[float]]]) -> Table:
    """Medians, and their ratio."""
    title = f"Steps per second, MLP on digits, {os.cpu_count()} cores, Python {platform.python_version()}"
    shown = Table(title=title)
    for column in ("strategy, replicas x loader", "by hand", "xlaexp", "ratio"):
        shown.add_column(column, justify="right" if column != "strategy, replicas x loader" else "left")
    for name, measured in results.items():
        hand, own = (statistics.median(measured[which]) for which in ("by hand", "xlaexp"))
        shown.add_row(name, f"{hand:,.0f}", f"{own:,.0f}", f"{own / hand:.2f}")
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--json", type=Path)
    parts = f"{bench_sweep.NAME!r} or {bench_checkpoint.NAME!r}"
    only = f"run the cells whose name has this text in it; {parts} for that part alone"
    parser.add_argument("--only", default="", help=only)
    args = parser.parse_args()
    cells = [cell for cell in CELLS if args.only in cell.name]
    content: dict[str, object] = {}
    if cells:
        results = compare(cells, args.repeats, args.epochs)
        Console().print(table(results))
        content |= results
    if args.only in bench_sweep.NAME:
        seconds, graphs = bench_sweep.measure(args.repeats)
        Console().print(bench_sweep.table(seconds, graphs))
        content[bench_sweep.NAME] = {"seconds": seconds, "graphs": graphs}
    if args.only in bench_checkpoint.NAME:
        costs = bench_checkpoint.measure(args.repeats)
        Console().print(bench_checkpoint.table(costs))
        content[bench_checkpoint.NAME] = costs
    if args.json:
        args.json.write_text(json.dumps(content, indent=2))


if __name__ == "__main__":
    main()
