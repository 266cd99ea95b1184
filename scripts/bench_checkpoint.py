"""What checkpoints cost: steps per second and peak memory with one every 50 steps, without, and of a loop by hand."""

import os
import statistics
import sys
from collections.abc import Mapping, Sequence

import bench_commands
from bench_commands import Measured
from rich.table import Table

NAME = "checkpoint"
EVERY, STEPS, BATCH = 50, 250, 64
STEPS_PER_EPOCH = 1438 // BATCH  # of digits
HIDDEN = (3500, 3500)  # 12.5 million parameters: 50 MB, and as much again for the momentum
STATE_MB = 2 * 50
SAVED, UNSAVED, BY_HAND = f"one every {EVERY} steps", "none", "by hand, none"


def by_hand() -> Measured:
    """The hand-written loop with the same model, which saves nothing."""
    epochs = STEPS // STEPS_PER_EPOCH + 1
    return bench_commands.by_hand(batch_size=BATCH, epochs=epochs, window=EVERY, hidden=",".join(map(str, HIDDEN)))


def xlaexp(every: int) -> Measured:
    """A run whose windows, but for the first, each have the cost of one checkpoint in them."""
    return bench_commands.xlaexp(
        BATCH,
        f"model.hidden={list(HIDDEN)}",
        *("optimizer.lr=0.01", f"train.max_steps={STEPS}", "train.epochs=100", f"train.log_every={EVERY}"),
        *(f"loader.batch_size={BATCH}", "checkpoint.unit=step", f"checkpoint.every={every}"),
    )


def measure(repeats: int) -> dict[str, list[Measured]]:
    """All of them in turn, in each repeat in the other order."""
    contestants = {SAVED: lambda: xlaexp(EVERY), UNSAVED: lambda: xlaexp(10**6), BY_HAND: by_hand}
    results: dict[str, list[Measured]] = {name: [] for name in contestants}
    for repeat in range(repeats):
        for name in list(contestants)[:: -1 if repeat % 2 else 1]:
            results[name].append(contestants[name]())
            print(f"repeat {repeat + 1}: checkpoints {name}: {results[name][-1]}", file=sys.stderr)
    return results


def table(results: Mapping[str, Sequence[Measured]]) -> Table:
    """Medians; steps per second against no checkpoints in the same repeat, memory against the loop by hand."""
    rate = {name: statistics.median(m.steps_per_s for m in found) for name, found in results.items()}
    peak = {name: statistics.median(m.peak_mb for m in found) for name, found in results.items()}
    shown = Table(title=f"Checkpoints of an MLP of 12.5 M parameters ({STATE_MB} MB of state), {os.cpu_count()} cores")
    for column in ("checkpoints", "steps per second", "ratio", "peak memory, MB", "1.15 x by hand + state, MB"):
        shown.add_column(column, justify="left" if column == "checkpoints" else "right")
    limit = 1.15 * peak[BY_HAND] + STATE_MB
    for name, found in results.items():
        pairs = zip(found, results[UNSAVED], strict=True)
        ratio = statistics.median(own.steps_per_s / other.steps_per_s for own, other in pairs)
        shown.add_row(name, f"{rate[name]:.2f}", f"{ratio:.3f}", f"{peak[name]:,.0f}", f"{limit:,.0f}")
    return shown
