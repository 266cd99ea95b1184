"""Sweeps that are refused before any job starts."""

from pathlib import Path

import pytest
from fresh import xlaexp


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        # Case 31.
        (["train.epochs=3,???"], "- jobs 1, 3 (first: seed=0 train.epochs=???): train.epochs: is mandatory"),
        (["train.epochs=1,2,x"], "- jobs 2, 5 (first: seed=0 train.epochs=x): train.epochs: input should be a valid"),
        (["train.epochs=x"], "- train.epochs: input should be a valid integer"),  # once, not for each job
        (["model.depth=1,2"], "- jobs 0, 2 (first: seed=0 model.depth=1): model.depth=1: unknown key"),
        (["hydra.launcher.n_jobs=1,2"], "- hydra.launcher.n_jobs=1,2: what is Hydra's own cannot be swept"),
        (["hydra.sweeper.max_batch_size=1"], "give hydra.launcher.n_jobs=N instead"),
        (["hydra.launcher.n_jobs=0"], "n_jobs has to be 1 or more"),
    ],
)
def test_a_sweep_that_cannot_be_starts_nothing(overrides: list[str], message: str, tmp_path: Path) -> None:
    ended = xlaexp("-m", "seed=0,1", *overrides, "hydra.sweep.dir=sweep", cwd=tmp_path)
    assert ended.code == 2
    assert "The config has" in ended.stderr
    assert message in ended.stderr
    assert not list(tmp_path.glob("sweep/*"))
