"""What a person sees of the training: a bar on a terminal, plain lines elsewhere."""

import logging
import time

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from xlaexp.callbacks import Callback, Run, Scalars
from xlaexp.console import PROGRESS, console
from xlaexp.result import Result

log = logging.getLogger("xlaexp")

_REFRESH_S = 0.1


class ProgressBar(Callback):
    """Shows steps, rate and time left; the loss is the one of the last reading: nothing is read for the bar."""

    def __init__(self) -> None:
        self._bar = Progress(
            TextColumn("step"),
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn("loss {task.fields[loss]}  {task.fields[rate]}"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self._shown = 0.0
        self._total = 0

    def start(self, run: Run) -> None:
        """Shows the bar, where there is a terminal to show it on."""
        self._task = self._bar.add_task("", total=run.total_steps, completed=run.step, loss="...", rate="")
        self._total = run.total_steps
        self._steps_per_epoch = run.steps_per_epoch
        if console.is_terminal:
            self._bar.start()

    def step(self, step: int) -> None:
        """Moves the bar, a few times a second."""
        now = time.perf_counter()
        if now - self._shown > _REFRESH_S or step == self._total:
            self._shown = now
            self._bar.update(self._task, completed=step)

    def log(self, step: int, scalars: Scalars) -> None:
        """Shows the loss on the bar, and as a line where there is no bar."""
        rate = f"{scalars['train/samples_per_s']:,.0f} samples/s"
        self._bar.update(self._task, completed=step, loss=f"{scalars['train/loss']:.4f}", rate=rate)
        log.info(
            "step %d/%d  loss %.4f  lr %.3g  %s",
            step,
            self._total,
            scalars["train/loss"],
            scalars["train/lr"],
            rate,
            extra=PROGRESS,
        )

    def evaluate(self, step: int, scalars: Scalars) -> None:
        """Says what an evaluation came to."""
        values = "  ".join(f"{name} {value:.4f}" for name, value in scalars.items())
        log.info("epoch %d  step %d  %s", -(-step // self._steps_per_epoch), step, values)

    def end(self, result: Result | None) -> None:
        """Takes the bar away."""
        if console.is_terminal:
            self._bar.stop()
