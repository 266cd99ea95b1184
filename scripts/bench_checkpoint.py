"""What checkpoints cost: steps per second and peak memory with one every 50 steps, without, and of a loop by hand."""

import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.table import Table

NAME = "checkpoint"
EVERY, STEPS, BATCH = 50, 250, 64
HIDDEN = (3500, 3500)  # 12.5 million parameters: 50 MB, and as much again for the momentum
STATE_MB = 2 * 50
SAVED, UNSAVED, BY_HAND = f"one every {EVERY} steps", "none", "by hand, none"

Measured = tuple[float, float]
"""Steps per second, and peak memory in MB."""


def measured(command: list[str]) -> tuple[str, float]:
    """The output of a command on XLA:CPU, and the most memory in MB that its process had."""
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            [sys.executable, *command], stdout=output, stderr=output, env={**os.environ, "PJRT_DEVICE": "CPU"}
        )
        _, status, usage = os.wait4(process.pid, 0)
        output.seek(0)
        text = output.read()
    if status:
        sys.exit(f"{' '.join(command)}\n{text}")
    return text, usage.ru_maxrss / 1000  # it counts in KiB; near enough


def by_hand() -> Measured:
    """The hand-written loop with the same model, which saves nothing."""
    epochs = STEPS // (1438 // BATCH) + 1
    options = {"batch-size": BATCH, "epochs": epochs, "window": EVERY, "hidden": ",".join(map(str, HIDDEN))}
    script = str(Path(__file__).with_name("handwritten.py"))
    text, peak = measured([script, *(f"--{name}={value}" for name, value in options.items())])
    return float(json.loads(text.splitlines()[-1])), peak


def xlaexp(every: int) -> Measured:
    """A run, by its own metrics.csv. Each of its windows but the first has the cost of one checkpoint in it."""
    with tempfile.TemporaryDirectory() as directory:
        _, peak = measured(
            [
                *(
                    "-m",
                    "xlaexp",
                    "optimizer=sgd",
                    "scheduler=constant",
                    f"model.hidden=[{','.join(map(str, HIDDEN))}]",
                ),
                *("optimizer.lr=0.01", f"train.max_steps={STEPS}", "train.epochs=100", "train.eval_every=1000"),
                *(f"loader.batch_size={BATCH}", f"train.log_every={EVERY}", "checkpoint.unit=step"),
                *(f"checkpoint.every={every}", f"hydra.run.dir={directory}/run"),
            ]
        )
        with Path(directory, "run", "metrics.csv").open() as file:
            rates = [float(row["train/samples_per_s"]) for row in csv.DictReader(file) if row["train/samples_per_s"]]
    return statistics.median(rates[1:]) / BATCH, peak


def measure(repeats: int) -> dict[str, list[Measured]]:
    """All of them in turn, in each repeat in the other order."""
    contestants = {SAVED: lambda: xlaexp(EVERY), UNSAVED: lambda: xlaexp(10**6), BY_HAND: by_hand}
    results: dict[str, list[Measured]] = {name: [] for name in contestants}
    for repeat in range(repeats):
        for name in sorted(contestants, key=list(contestants).index, reverse=bool(repeat % 2)):
            results[name].append(contestants[name]())
            print(f"repeat {repeat + 1}: checkpoints {name}: {results[name][-1]}", file=sys.stderr)
    return results


def table(results: Mapping[str, Sequence[Measured]]) -> Table:
    """Medians; steps per second against a run without checkpoints, memory against the hand-written loop."""
    rate, peak = ({name: statistics.median(m[i] for m in found) for name, found in results.items()} for i in (0, 1))
    shown = Table(title=f"Checkpoints of an MLP of 12.5 M parameters ({STATE_MB} MB of state), {os.cpu_count()} cores")
    for column in ("checkpoints", "steps per second", "ratio", "peak memory, MB", "1.15 x by hand + state, MB"):
        shown.add_column(column, justify="left" if column == "checkpoints" else "right")
    limit = 1.15 * peak[BY_HAND] + STATE_MB
    for name in results:
        shown.add_row(
            name, f"{rate[name]:.2f}", f"{rate[name] / rate[UNSAVED]:.3f}", f"{peak[name]:,.0f}", f"{limit:,.0f}"
        )
    return shown
