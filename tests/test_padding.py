"""Samples of different lengths: few graphs, and numbers that padding does not change."""

from pathlib import Path

import numpy as np
import pytest
import torch
from fresh import xlaexp
from test_replicas import assert_equal, read
from test_runs import ended_well
from test_steps import counted
from test_training import checkpoint

from xlaexp.components.data.padding import Padding

DATA = ("data=user_package.sequences.Sequences", "model=user_package.sequences.Sums", "loader.batch_size=4")
SGD = ("optimizer=sgd", "optimizer.momentum=0", "scheduler=constant")


@pytest.mark.parametrize("loader", ["plain", "mp_device_loader"])
@pytest.mark.parametrize(("longest", "pad_to", "graphs"), [(8, "8", 1), (16, "[8,16]", 2)])
def test_case_2_batches_of_different_lengths_are_few_graphs(
    loader: str, longest: int, pad_to: str, graphs: int, tmp_path: Path
) -> None:
    options = (f"data.longest={longest}", f"loader.pad_to={pad_to}", f"loader={loader}", "train.log_every=1000")
    counts = counted(tmp_path, *DATA, *SGD, *options, "loader.batch_size=2", "train.epochs=2")["train"]
    assert counts["compilations"] == graphs
    assert counts["executions"] == 32


@pytest.mark.parametrize("per_token", [False, True])
def test_padding_changes_no_number(per_token: bool, tmp_path: Path) -> None:
    ends = []
    for number, (device, pad_to, batch_size) in enumerate(
        [("single", "8", 4), ("single", "[3,24]", 4), ("multi", "[12]", 2)]
    ):
        kind = (f"data.per_token={per_token}", f"model.per_token={per_token}", "tracking=csv", "train.epochs=3")
        options = (f"device={device}", f"loader.pad_to={pad_to}", f"loader.batch_size={batch_size}")
        ended_well(xlaexp(*DATA, *SGD, *kind, *options, f"hydra.run.dir={number}", cwd=tmp_path))
        metrics = read(tmp_path / str(number) / "result.json")["metrics"]
        assert 0 < metrics["val/accuracy"] < 1
        ends.append({**checkpoint(tmp_path / str(number))["model"], "metrics": torch.tensor(list(metrics.values()))})
    assert_equal(ends, tolerance=1e-5)


def test_what_is_padded() -> None:
    samples = [
        (
            {"tokens": torch.arange(1, 1 + n), "frames": np.ones((n, 2), np.float32)},
            torch.arange(n),
            torch.tensor([0.5]),
        )
        for n in (2, 3)
    ]
    inputs, labels, values = Padding(4, 9.0)(samples)
    assert inputs["tokens"].tolist() == [[1, 2, 9, 9], [1, 2, 3, 9]]
    assert inputs["frames"].shape == (2, 4, 2)
    assert inputs["frames"][0, 1:, 0].tolist() == [1, 9, 9]
    assert labels.tolist() == [[0, 1, -100, -100], [0, 1, 2, -100]]
    assert values.tolist() == [[0.5], [0.5]]
    assert [Padding(4).length(n) for n in (0, 1, 4, 5)] == [4, 4, 4, 8]
    assert [Padding([16, 8]).length(n) for n in (1, 8, 9, 16)] == [8, 8, 16, 16]


def test_a_sample_that_is_too_long_is_named(tmp_path: Path) -> None:
    ended = xlaexp(*DATA, "debug=fast_run", "loader.pad_to=[4]", cwd=tmp_path)
    assert ended.code == 1
    assert "is longer than 4, the greatest of loader.pad_to" in ended.stderr
    assert "in the collation of samples" in ended.stderr


def test_a_metric_of_all_samples_needs_one_length(tmp_path: Path) -> None:
    kind = ("data.per_token=true", "model.per_token=true", "+metrics.mine._target_=user_package.metrics.python_number")
    ended = xlaexp(*DATA, *kind, "debug=fast_run", "data.longest=16", "loader.pad_to=4", cwd=tmp_path)
    assert ended.code == 1
    assert "metrics.mine: ValueError: it is computed of all samples together" in ended.stderr
