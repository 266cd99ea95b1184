"""The commands that the benchmarks compare, each in a process of its own on XLA:CPU."""

import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple


class Ended(NamedTuple):
    """What a command came to."""

    output: str
    peak_mb: float
    """The most memory that its first process had."""


class Measured(NamedTuple):
    """What a training loop came to."""

    steps_per_s: float
    peak_mb: float


def run(command: list[str]) -> Ended:
    """Runs Python with these arguments; ends the benchmark where that fails."""
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        environment = {**os.environ, "PJRT_DEVICE": "CPU"}
        process = subprocess.Popen([sys.executable, *command], stdout=output, stderr=errors, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        for file in (output, errors):
            file.seek(0)
        text = output.read()
        if process.returncode:
            sys.exit(f"{' '.join(command)}\n{text}{errors.read()}")
    return Ended(text, usage.ru_maxrss * 1024 / 1e6)


def by_hand(**options: object) -> Measured:
    """The hand-written loop."""
    arguments = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    ended = run([str(Path(__file__).with_name("handwritten.py")), *arguments])
    return Measured(float(json.loads(ended.output.splitlines()[-1])), ended.peak_mb)


def xlaexp(samples: int, *overrides: str) -> Measured:
    """A run of xlaexp, by its own metrics.csv: the median of all windows but the first.

    Args:
        samples: of a step, over all replicas.
        overrides: of the run.
    """
    with tempfile.TemporaryDirectory() as directory:
        # The loop by hand neither evaluates nor saves.
        alike = ("optimizer=sgd", "scheduler=constant", "train.eval_every=1000000", "checkpoint.every=1000000")
        ended = run(["-m", "xlaexp", *alike, *overrides, f"hydra.run.dir={directory}/run"])
        with Path(directory, "run", "metrics.csv").open() as file:
            rates = [float(row["train/samples_per_s"]) for row in csv.DictReader(file) if row["train/samples_per_s"]]
    return Measured(statistics.median(rates[1:]) / samples, ended.peak_mb)
