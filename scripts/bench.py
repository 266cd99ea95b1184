"""What xlaexp costs: steps per second against a loop written by hand, sweeps, and checkpoints.

Both loops train the same model on the same data, each in a process of its own, in turn; the table gives medians over
the repeats and their ratio. For sweeps and checkpoints see bench_sweep.py and bench_checkpoint.py. Runs on XLA:CPU.

usage: .venv/bin/python scripts/bench.py [--repeats N] [--epochs N] [--only TEXT] [--json FILE]
"""

import argparse
import csv
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import bench_checkpoint
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


def run(command: list[str]) -> str:
    """The output of a command on XLA:CPU."""
    environment = {**os.environ, "PJRT_DEVICE": "CPU"}
    ended = subprocess.run([sys.executable, *command], capture_output=True, text=True, env=environment, check=False)
    if ended.returncode:
        sys.exit(f"{' '.join(command)}\n{ended.stdout}{ended.stderr}")
    return ended.stdout


def by_hand(cell: Cell, epochs: int) -> float:
    """Steps per second of the hand-written loop."""
    options = {"replicas": cell.replicas, "loader": cell.loader, "batch-size": BATCH // cell.replicas, "epochs": epochs}
    arguments = [f"--{name}={value}" for name, value in options.items()]
    return float(json.loads(run([str(Path(__file__).with_name("handwritten.py")), *arguments]).splitlines()[-1]))


def xlaexp(cell: Cell, epochs: int) -> float:
    """Steps per second of xlaexp, from its own metrics.csv."""
    with tempfile.TemporaryDirectory() as directory:
        device = ["device=multi", f"device.replicas={cell.replicas}"] if cell.replicas > 1 else ["device=single"]
        run(
            [
                *("-m", "xlaexp", *device, f"loader={cell.loader}", f"loader.batch_size={BATCH // cell.replicas}"),
                *("optimizer=sgd", "scheduler=constant", f"train.epochs={epochs}", "train.eval_every=1000000"),
                *("train.log_every=220", f"hydra.run.dir={directory}/run"),
            ]
        )
        with Path(directory, "run", "metrics.csv").open() as file:
            rates = [float(row["train/samples_per_s"]) for row in csv.DictReader(file) if row["train/samples_per_s"]]
    return statistics.median(rates[1:]) / BATCH


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
        seconds, graphs = bench_sweep.measure(run, args.repeats)
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
