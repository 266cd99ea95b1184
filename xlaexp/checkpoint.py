"""``checkpoints/last.pt`` and ``best.pt``: everything on the CPU, loadable with ``weights_only=True``."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from xlaexp.callbacks import Callback, Run, Scalars
from xlaexp.files import write_atomic
from xlaexp.result import improves
from xlaexp.xla import runtime


class Checkpoints(Callback):
    """Saves at each evaluation, which the end of training is as well. Replica 0 only: nothing in it is collective.

    Args:
        directory: output directory of the run.
        state: state dicts by name; what they hold has been executed.
        metric: the objective.
        mode: "max" or "min".
    """

    def __init__(self, directory: Path, state: Callable[[], Mapping[str, Any]], metric: str, mode: str) -> None:
        self._directory = directory / "checkpoints"
        self._state = state
        self._metric = metric
        self._mode = mode
        self._best: float | None = None

    def start(self, run: Run) -> None:
        """Keeps what describes the run."""
        self._directory.mkdir(exist_ok=True)
        self._config = dict(run.config)
        self._steps_per_epoch = run.steps_per_epoch

    def evaluate(self, step: int, scalars: Scalars) -> None:
        """Saves ``last.pt``, and ``best.pt`` where no evaluation before was as good."""
        content = {
            **runtime.download(dict(self._state())),
            "step": step,
            "epoch": step // self._steps_per_epoch,
            "metrics": dict(scalars),
            "config": self._config,
        }
        self._save("last.pt", content)
        if improves(scalars[self._metric], self._best, self._mode):
            self._best = scalars[self._metric]
            self._save("best.pt", content)

    def _save(self, name: str, content: Mapping[str, Any]) -> None:
        write_atomic(self._directory / name, lambda file: torch.save(content, file))
