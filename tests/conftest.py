"""Fixtures."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test runs in a directory of its own, so that nothing is written anywhere else."""
    monkeypatch.chdir(tmp_path)
