"""Step boundaries: one mark, one execution and one graph a step, and no reading that was not asked for."""

import json
import math
from pathlib import Path
from typing import Any

import in_replica
import pytest
from composing import config
from fresh import call
from test_replicas import assert_equal, loaded, on_replicas

PLAIN_SGD = ("optimizer=sgd", "optimizer.momentum=0", "train.log_every=1000", "train.epochs=2")
STEPS = 20


def counted(directory: Path, *overrides: str) -> dict[str, dict[str, int]]:
    on_replicas(in_replica.count, directory, *overrides)
    content: dict[str, dict[str, int]] = json.loads((directory / "count.json").read_text())
    return content


def counted_epochs(directory: Path, *overrides: str) -> dict[str, Any]:
    """What all epochs of training cost on one replica, and their learning rates."""
    data = ("data=fake", "data.shape=[4]", "data.val_size=8", "loader=plain", "loader.batch_size=8")
    on_replicas(in_replica.count_epochs, directory, *data, *PLAIN_SGD, *overrides)
    content: dict[str, Any] = json.loads((directory / "count.json").read_text())
    return content


@pytest.mark.parametrize(("overrides", "executions", "graphs"), [((), 8, 1), (("loader.drop_last=false",), 10, 2)])
def test_case_1_a_partial_batch_is_left_out_unless_it_is_asked_for(
    overrides: tuple[str, ...], executions: int, graphs: int, tmp_path: Path
) -> None:
    # 35 samples in batches of 8: four, and three samples that are left over.
    train = counted_epochs(tmp_path, "data.train_size=35", *overrides)["train"]
    assert (train["compilations"], train["executions"], train["marks"]) == (graphs, executions, executions)


@pytest.mark.parametrize(
    ("scheduler", "warmup", "falling"),
    [
        ("cosine", "4", lambda progress: (1 + math.cos(math.pi * progress)) / 2),
        ("linear", "0.25", lambda progress: 1 - progress),
    ],
)
def test_case_5_a_schedule_is_one_graph(scheduler: str, warmup: str, falling: Any, tmp_path: Path) -> None:
    choice = (f"scheduler={scheduler}", f"scheduler.warmup={warmup}", "scheduler.min_factor=0.2", "optimizer.lr=0.3")
    found = counted_epochs(tmp_path, "data.train_size=64", *choice, "train.log_every=1")
    assert (found["train"]["compilations"], found["train"]["executions"]) == (1, 16)
    factors = [0.25, 0.5, 0.75, 1.0, *(0.2 + 0.8 * falling(step / 12) for step in range(12))]
    assert found["logged"] == pytest.approx([0.3 * factor for factor in factors], rel=1e-12)
    assert found["applied"] == pytest.approx(found["logged"], rel=1e-4)  # by the device, in single precision


@pytest.mark.parametrize(
    ("device", "loader", "executions", "marks"),
    [
        ("single", "plain", STEPS, STEPS),
        # MpDeviceLoader marks before every batch, the first one included, and the strategy after the last one.
        ("single", "mp_device_loader", STEPS, STEPS + 1),
        ("multi", "plain", 2 * STEPS, 2 * STEPS),
        ("multi", "mp_device_loader", 2 * STEPS, 2 * (STEPS + 1)),
    ],
)
def test_executions_marks_and_graphs(device: str, loader: str, executions: int, marks: int, tmp_path: Path) -> None:
    samples = STEPS * 8 * (2 if device == "multi" else 1)
    data = ("data=fake", "data.shape=[4]", f"data.train_size={samples}", "data.val_size=20", "loader.batch_size=8")
    train = counted(tmp_path, f"device={device}", f"loader={loader}", *data, *PLAIN_SGD)["train"]
    assert train == {"compilations": 1, "executions": executions, "marks": marks, "reads": 0}


def test_case_4_the_loss_is_read_at_log_steps_only(tmp_path: Path) -> None:
    data = ("data=fake", "data.shape=[4]", "data.train_size=64", "data.val_size=8", "loader.batch_size=8")
    train = counted(tmp_path, *data, *PLAIN_SGD, "train.log_every=4")["train"]
    assert train == {"compilations": 1, "executions": 8, "marks": 8, "reads": 2}


def test_case_6_masks_with_changing_counts_are_one_graph(tmp_path: Path) -> None:
    # 20 samples in batches of 8: masks of 8, 8 and 4 samples.
    data = ("data=fake", "data.shape=[4]", "data.train_size=64", "data.val_size=20", "loader.batch_size=8")
    assert counted(tmp_path, *data, *PLAIN_SGD)["evaluate"] == {
        "compilations": 1,
        "executions": 3,
        "marks": 3,
        "reads": 1,
    }


def test_case_38_the_progress_bar_reads_nothing(tmp_path: Path) -> None:
    overrides = ("train.epochs=1", "optimizer=sgd", "optimizer.momentum=0", "train.log_every=11")
    ended = call(
        in_replica.everywhere,
        in_replica.count_with_bar,
        config(*overrides),
        tmp_path,
        cwd=tmp_path,
        env={"TTY_COMPATIBLE": "1", "TERM": "xterm", "COLUMNS": "120"},
    )
    assert ended.code == 0, ended.stderr
    assert "22/22" in ended.stdout  # it was drawn
    train = json.loads((tmp_path / "count.json").read_text())["train"]
    assert train == {"compilations": 1, "executions": 22, "marks": 22, "reads": 2}


def test_an_early_stop_executes_its_last_step(tmp_path: Path) -> None:
    ends = []
    for loader in ("plain", "mp_device_loader"):
        (tmp_path / loader).mkdir()
        on_replicas(in_replica.early_stop, tmp_path / loader, f"loader={loader}", "train.max_steps=5")
        ends.append(loaded(tmp_path / loader / "last-0.pt"))
    assert_equal(ends, tolerance=1e-6)


def test_several_batches_an_execution_change_no_number(tmp_path: Path) -> None:
    ends = []
    for batches in (1, 3):
        (tmp_path / str(batches)).mkdir()
        overrides = ("loader=mp_device_loader", f"loader.batches_per_execution={batches}", "train.epochs=2")
        on_replicas(in_replica.train, tmp_path / str(batches), *overrides, "train.log_every=1", "optimizer=sgd")
        ends.append(loaded(tmp_path / str(batches) / "last-0.pt"))
    assert_equal(ends, tolerance=1e-6)
