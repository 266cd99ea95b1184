"""``result.json``: what a run came to. A launch returns nothing, so that this is how the parent learns it."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from xlaexp.files import write_json

FILE = "result.json"


def improves(value: float, best: float | None, mode: str) -> bool:
    """Whether a value of the objective is better than the best so far; a NaN never is, unless there is no number.

    Args:
        value: the new one.
        best: the best so far, or None.
        mode: "max" or "min".
    """
    if best is None or best != best:
        return True
    return value > best if mode == "max" else value < best


@dataclass(frozen=True)
class Result:
    """What a finished run came to."""

    metric: str
    """Name of the objective."""
    objective: float
    """Its best value over all evaluations; what a sweeper gets."""
    objectives: Mapping[str, float]
    """All objectives by name at the evaluation where the first one was best; more than one only if so configured."""
    metrics: Mapping[str, float]
    """The last evaluation's values."""
    epochs: int
    """Epochs, the last one perhaps begun only."""
    steps: int
    """Optimizer steps."""
    replicas: int
    """Replicas that trained."""
    seconds: float
    """Time from the first batch to the last evaluation."""
    pruned: bool = False
    """Whether the sweep has ended it early, as one that does not look promising."""
    compilations: int = 0
    """Graphs that replica 0's process has compiled for it; 0 where an earlier run in the process had them all."""

    @property
    def returned(self) -> float | list[float]:
        """What a job returns to a sweeper: the objective, or a list of all where there are several."""
        return list(self.objectives.values()) if len(self.objectives) > 1 else self.objective

    def write(self, directory: Path) -> None:
        """Writes it to an output directory."""
        write_json(directory / FILE, asdict(self))

    @classmethod
    def read(cls, directory: Path) -> "Result":
        """Reads it from an output directory.

        Raises:
            FileNotFoundError: the run has not ended well.
        """
        return cls(**json.loads((directory / FILE).read_text()))
