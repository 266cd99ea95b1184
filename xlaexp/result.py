"""``result.json``: what a run came to. A launch returns nothing, so that this is how the parent learns it."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from xlaexp.files import write_json

FILE = "result.json"


@dataclass(frozen=True)
class Result:
    """What a finished run came to."""

    metric: str
    """Name of the objective."""
    objective: float
    """Its best value over all evaluations; what a sweeper gets."""
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
    compilations: int = 0
    """Graphs that replica 0's process has compiled for it; 0 where an earlier run in the process had them all."""

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
