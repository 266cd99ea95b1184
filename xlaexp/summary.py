"""What a person reads when a run has ended."""

import shlex
from pathlib import Path

from rich.table import Table

from xlaexp.console import console
from xlaexp.result import Result


def show(result: Result, directory: Path) -> None:
    """Prints the summary table, and the command that opens TensorBoard where the run has written for it.

    Args:
        result: what the run came to.
        directory: its output directory.
    """
    table = Table(title="Run finished", title_justify="left", show_header=False)
    table.add_row("objective", f"{result.metric} {result.objective:.4f} (best)")
    for name, value in result.metrics.items():
        table.add_row(name, f"{value:.4f} (last)")
    epochs, replicas = _count(result.epochs, "epoch"), _count(result.replicas, "replica")
    table.add_row("steps", f"{result.steps:,} in {epochs} on {replicas}")
    table.add_row("graphs", f"{result.compilations} compiled")
    table.add_row("time", f"{result.seconds:.1f} s, evaluations included")
    table.add_row("output", str(directory), style="bold")
    console.print(table, soft_wrap=True)
    if (directory / "tb").is_dir():
        console.print(f"tensorboard --logdir {shlex.quote(str(directory / 'tb'))}", soft_wrap=True, markup=False)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
