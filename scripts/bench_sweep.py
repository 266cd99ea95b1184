"""Wall time of a sweep: our launcher, the same with reuse, a command for each job, and Hydra's basic launcher."""

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench_commands import run
from rich.table import Table

NAME = "sweep"
JOBS = 8
SEPARATE, BASIC, REUSE = "a command for each job", "hydra/launcher=basic", "hydra.launcher.reuse=true"
RATES = [f"{0.001 * (1 + job):g}" for job in range(JOBS)]
JOB = ("data=digits", "model=mlp", "device=single", "train.epochs=2")


def sweep(directory: Path, *options: str) -> None:
    """The jobs as one sweep."""
    swept = f"optimizer.lr={','.join(RATES)}"
    run(["-m", "xlaexp", "-m", swept, *JOB, *options, f"hydra.sweep.dir={directory}"])


def separate(directory: Path) -> None:
    """The jobs as one command after the other."""
    for number, rate in enumerate(RATES):
        run(["-m", "xlaexp", f"optimizer.lr={rate}", *JOB, f"hydra.run.dir={directory}/{number}"])


CONTESTANTS: dict[str, Callable[[Path], None]] = {
    "hydra.launcher.n_jobs=1": sweep,
    REUSE: lambda directory: sweep(directory, REUSE),
    SEPARATE: separate,
    BASIC: lambda directory: sweep(directory, BASIC),
}


def compilations(directory: Path) -> list[int]:
    """What each job has compiled."""
    found = [json.loads(path.read_text())["compilations"] for path in directory.glob("*/result.json")]
    assert len(found) == JOBS, directory
    return found


def measure(repeats: int) -> tuple[dict[str, list[float]], dict[str, int]]:
    """Seconds of each contestant in each repeat, in turn, and the graphs that all its jobs have compiled.

    Args:
        repeats: how often.
    """
    seconds: dict[str, list[float]] = {name: [] for name in CONTESTANTS}
    graphs: dict[str, int] = {}
    for repeat in range(repeats):
        for name, contestant in CONTESTANTS.items():
            with tempfile.TemporaryDirectory() as temporary:
                directory = Path(temporary, "jobs")
                started = time.perf_counter()
                contestant(directory)
                seconds[name].append(time.perf_counter() - started)
                graphs[name] = sum(compilations(directory))
            print(f"repeat {repeat + 1}: {NAME}, {name}: {seconds[name][-1]:.1f} s", file=sys.stderr)
    if graphs[REUSE] * JOBS != graphs[SEPARATE]:
        sys.exit(f"with reuse {graphs[REUSE]} graphs were compiled, by {JOBS} commands {graphs[SEPARATE]}")
    return seconds, graphs


def table(seconds: dict[str, list[float]], graphs: dict[str, int]) -> Table:
    """Medians, and their ratios to the two last contestants."""
    shown = Table(title=f"A sweep of {JOBS} jobs, MLP on digits, {JOB[-1]}")
    for column in ("", "seconds", "to separate", "to basic", "graphs"):
        shown.add_column(column, justify="right" if column else "left")
    medians = {name: statistics.median(measured) for name, measured in seconds.items()}
    for name, median in medians.items():
        ratios = [f"{median / medians[other]:.2f}" for other in (SEPARATE, BASIC)]
        shown.add_row(name, f"{median:.1f}", *ratios, str(graphs[name]))
    return shown
