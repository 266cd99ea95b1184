"""Steps per second of xlaexp against a loop written by hand, for each strategy.

Both train the same model on the same data, each in a process of its own, in turn; the table gives medians over
the repeats and their ratio. Runs on XLA:CPU.

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
from dataclasses import dataclass
from pathlib import Path

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", default="", help="run the cells whose name has this text in it")
    args = parser.parse_args()
    cells = [cell for cell in CELLS if args.only in cell.name]
    results: dict[str, dict[str, list[float]]] = {c.name: {"by hand": [], "xlaexp": []} for c in cells}
    for repeat in range(args.repeats):
        for cell in cells:
            contestants = {"by hand": by_hand, "xlaexp": xlaexp}
            # Each goes first in half of the repeats.
            for name in sorted(contestants, reverse=bool(repeat % 2)):
                results[cell.name][name].append(contestants[name](cell, args.epochs))
            print(f"repeat {repeat + 1}: {cell.name}", file=sys.stderr)
    title = f"Steps per second, MLP on digits, {os.cpu_count()} cores, Python {platform.python_version()}"
    table = Table(title=title)
    for column in ("strategy, replicas x loader", "by hand", "xlaexp", "ratio"):
        table.add_column(column, justify="right" if column != "strategy, replicas x loader" else "left")
    for name, measured in results.items():
        hand, own = (statistics.median(measured[which]) for which in ("by hand", "xlaexp"))
        table.add_row(name, f"{hand:,.0f}", f"{own:,.0f}", f"{own / hand:.2f}")
    Console().print(table)
    if args.json:
        args.json.write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
