"""``tb/``: one event file with scalars, the config as text, and a row in the HParams tab."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch.utils.tensorboard.summary import hparams
from torch.utils.tensorboard.writer import SummaryWriter

from xlaexp.callbacks import Callback, Run, Scalars
from xlaexp.registry import TRACKERS
from xlaexp.result import Result

OBJECTIVE = "objective"


@TRACKERS.register("tensorboard")
class TensorBoardTracker(Callback):
    """Writes what TensorBoard shows.

    Args:
        directory: output directory of the run; the event file goes into ``tb/``.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory / "tb"

    def start(self, run: Run) -> None:
        """Writes the config, as text and as hyper-parameters.

        ``SummaryWriter.add_hparams`` would open a second event file in a run of its own; the same summaries
        in this file put the hyper-parameters beside the scalars they led to. The one that describes the experiment
        is left out: of several runs TensorBoard would take the first one's, which knows no hyper-parameters of
        another model; without it, it looks at all runs, and shows first what differs between them.
        """
        # Of what was written after the checkpoint TensorBoard is told to forget it.
        first = run.step + 1 if run.step else 0
        purge = first if any(self._directory.glob("events.out.*")) else None
        self._writer = SummaryWriter(str(self._directory), purge_step=purge)  # type: ignore[no-untyped-call]
        text = json.dumps(run.config, indent=2)
        self._writer.add_text("config", f"```json\n{text}\n```")  # type: ignore[no-untyped-call]
        _, session, self._finished = hparams(  # type: ignore[no-untyped-call]
            dict(flattened(run.config)), {OBJECTIVE: 0.0, run.metric: 0.0}
        )
        self._add(session)

    def log(self, step: int, scalars: Scalars) -> None:
        """Writes the scalars."""
        for name, value in scalars.items():
            self._writer.add_scalar(name, value, step)  # type: ignore[no-untyped-call]

    def evaluate(self, step: int, scalars: Scalars) -> None:
        """Writes the scalars, and makes them visible at once."""
        self.log(step, scalars)
        self._writer.flush()  # type: ignore[no-untyped-call]

    def checkpoint(self, step: int) -> None:
        """Writes what waits in memory."""
        self._writer.flush()  # type: ignore[no-untyped-call]

    def end(self, result: Result | None) -> None:
        """Writes the objective, and closes the file."""
        if result is not None:
            self._writer.add_scalar(OBJECTIVE, result.objective, result.steps)  # type: ignore[no-untyped-call]
            self._add(self._finished)
        if hasattr(self, "_writer"):  # else the run has failed before it started
            self._writer.close()  # type: ignore[no-untyped-call]

    def _add(self, *summaries: Any) -> None:
        for summary in summaries:
            self._writer._get_file_writer().add_summary(summary)  # type: ignore[no-untyped-call]


def flattened(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, int | float | str]]:
    """Dotted keys and values that the HParams tab can show: lists and booleans become text, null is left out."""
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from flattened(value, f"{prefix}{key}.")
        elif isinstance(value, int | float | str) and not isinstance(value, bool):
            yield f"{prefix}{key}", value
        elif value is not None:
            yield f"{prefix}{key}", json.dumps(value)
