"""A run that goes on from a checkpoint ends as if nothing had happened, to the bit."""

import csv
import json
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from fresh import Ended, xlaexp
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from test_sweep import ended_well, start

RUN = (
    *("optimizer=adamw", "train.epochs=3", "train.log_every=5", "train.max_steps=30", "checkpoint.every=4"),
    *("checkpoint.unit=step", "checkpoint.keep_last=100", "tracking=both", "train.clip_norm=1", "train.ema_decay=0.9"),
)
MLP = (*RUN, "model.dropout=0.2", "model.hidden=[32]", "loader.batch_size=64")
CNN = (*RUN, "model=cnn", "model.channels=[4,8]", "loader.batch_size=64", "model.dropout=0.1")


def checkpoint(directory: Path, name: str = "last.pt") -> dict[str, Any]:
    content: dict[str, Any] = torch.load(directory / "checkpoints" / name, weights_only=True)
    return content


def assert_equal(first: Any, second: Any, where: str = "") -> None:
    """Everything in two states is equal to the bit."""
    assert type(first) is type(second), where
    if isinstance(first, dict):
        assert first.keys() == second.keys(), where
        for key in first:
            assert_equal(first[key], second[key], f"{where}.{key}")
    elif isinstance(first, list | tuple):
        assert len(first) == len(second), where
        for number, (one, other) in enumerate(zip(first, second, strict=True)):
            assert_equal(one, other, f"{where}.{number}")
    elif isinstance(first, torch.Tensor):
        assert torch.equal(first, second), where
    else:
        assert first == second, where


def assert_same_end(directory: Path, reference: Path) -> None:
    """Two runs have ended with the same state."""
    states = [checkpoint(directory), checkpoint(reference)]
    for state in states:
        del state["config"], state["callbacks"]
    assert_equal(*states)


def rows(directory: Path) -> list[dict[str, str]]:
    with (directory / "metrics.csv").open(newline="") as file:
        return [{k: v for k, v in row.items() if k != "train/samples_per_s"} for row in csv.DictReader(file)]


def scalars(directory: Path) -> dict[str, list[tuple[int, float]]]:
    events = EventAccumulator(str(directory / "tb"))
    events.Reload()
    tags = set(events.Tags()["scalars"]) - {"train/samples_per_s"}
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in tags}


def go_on(directory: Path, *overrides: str, cwd: Path) -> Ended:
    return xlaexp(*overrides, f"hydra.run.dir={directory}", "resume=auto", cwd=cwd)


@pytest.mark.parametrize(
    ("device", "loader", "steps", "options"),
    [
        ("single", "plain", (4, 22, 28), MLP),
        ("single", "mp_device_loader", (12, 24), (*MLP, "loader.batches_per_execution=2")),
        ("multi", "plain", (12,), CNN),
        ("multi", "mp_device_loader", (8,), (*CNN, "train.accumulate=2", "train.max_steps=15")),
    ],
)
def test_resumed_runs_end_as_the_uninterrupted_one(
    device: str, loader: str, steps: tuple[int, ...], options: tuple[str, ...], tmp_path: Path
) -> None:
    command = (f"device={device}", f"loader={loader}", *options)
    ended_well(xlaexp(*command, "hydra.run.dir=whole", cwd=tmp_path))
    for step in steps:
        name = f"step-{step:08}.pt"
        ended_well(xlaexp(*command, f"resume=whole/checkpoints/{name}", f"hydra.run.dir=from-{step}", cwd=tmp_path))
        assert_same_end(tmp_path / f"from-{step}", tmp_path / "whole")
        results = [json.loads((tmp_path / run / "result.json").read_text()) for run in ("whole", f"from-{step}")]
        for name in ("objective", "metrics", "steps", "epochs"):
            assert results[0][name] == results[1][name]
        later = [row for row in rows(tmp_path / "whole") if int(row["step"]) > step]
        assert rows(tmp_path / f"from-{step}") == later


def test_a_killed_run_goes_on_in_its_directory(tmp_path: Path) -> None:
    ended_well(xlaexp(*MLP, "hydra.run.dir=whole", cwd=tmp_path))
    shutil.copytree(tmp_path / "whole", tmp_path / "killed")
    # As if it had been killed after step 26, with a file half written.
    for number in (28, 30):
        (tmp_path / "killed" / "checkpoints" / f"step-{number:08}.pt").unlink(missing_ok=True)
    (tmp_path / "killed" / "checkpoints" / "best.pt").unlink()
    (tmp_path / "killed" / "checkpoints" / ".step-00000028.pt.77").write_bytes(b"half")
    (tmp_path / "killed" / "result.json").unlink()
    ended = ended_well(go_on(tmp_path / "killed", *MLP, cwd=tmp_path))
    assert "step-00000024.pt, after step 24" in ended.stdout
    assert_same_end(tmp_path / "killed", tmp_path / "whole")
    assert rows(tmp_path / "killed") == rows(tmp_path / "whole")
    assert scalars(tmp_path / "killed") == scalars(tmp_path / "whole")
    assert not list((tmp_path / "killed" / "checkpoints").glob(".*"))
    environment = json.loads((tmp_path / "killed" / "environment.json").read_text())
    assert len(environment["before"]) == 1


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize("device", ["single", "multi"])
def test_a_signal_saves_at_the_next_step(device: str, signum: signal.Signals, code: int, tmp_path: Path) -> None:
    command = (*CNN, f"device={device}", "train.max_steps=120", "train.epochs=10", "checkpoint.every=50")
    ended_well(xlaexp(*command, "hydra.run.dir=whole", cwd=tmp_path))
    run = start(*command, "hydra.run.dir=stopped", cwd=tmp_path)
    deadline = time.monotonic() + 100
    while "step 10/" not in log(tmp_path / "stopped") and time.monotonic() < deadline:
        time.sleep(0.02)
    if device == "multi":
        os.killpg(run.pid, signum)  # as a terminal does
    else:
        run.send_signal(signum)
    assert run.wait(30) == code
    assert not (tmp_path / "stopped" / "failure.json").exists()
    step = checkpoint(tmp_path / "stopped")["step"]
    assert 10 <= step < 120
    assert f"stopped by {signum.name} after step {step}" in log(tmp_path / "stopped")
    ended_well(go_on(tmp_path / "stopped", *command, cwd=tmp_path))
    assert_same_end(tmp_path / "stopped", tmp_path / "whole")
    assert rows(tmp_path / "stopped") == rows(tmp_path / "whole")


def log(directory: Path) -> str:
    path = directory / "xlaexp.log"
    return path.read_text() if path.exists() else ""


def damage(path: Path, how: str) -> None:
    content = bytearray(path.read_bytes())
    if how == "flipped":
        content[len(content) // 2] ^= 4
    path.unlink()  # last.pt and best.pt are other names of the same file
    path.write_bytes({"truncated": content[:-100], "empty": b""}.get(how, content))


@pytest.mark.parametrize("how", ["truncated", "flipped", "empty"])
def test_of_damaged_checkpoints_the_one_before_is_used(how: str, tmp_path: Path) -> None:
    short = (*MLP, "train.max_steps=12")
    ended_well(xlaexp(*short, "hydra.run.dir=run", cwd=tmp_path))
    damage(tmp_path / "run" / "checkpoints" / "step-00000012.pt", how)
    ended = ended_well(go_on(tmp_path / "run", *short, cwd=tmp_path))
    assert "step-00000012.pt is damaged" in ended.stdout
    assert "step-00000008.pt is used instead" in ended.stdout
    assert checkpoint(tmp_path / "run")["step"] == 12


def test_case_24_with_another_number_of_replicas_the_samples_go_on(tmp_path: Path) -> None:
    data = ("data=fake", "data.shape=[4]", "data.train_size=32", "data.val_size=8", "loader.batch_size=4")
    short = (*data, "optimizer=sgd", "tracking=csv", "checkpoint.unit=step", "train.epochs=2")
    ended_well(xlaexp(*short, "device=multi", "train.max_steps=2", "hydra.run.dir=two", cwd=tmp_path))
    assert checkpoint(tmp_path / "two")["samples"] == 16
    ended = ended_well(xlaexp(*short, "resume=two", "hydra.run.dir=one", "train.epochs=1", cwd=tmp_path))
    assert "the numbers will differ" in ended.stdout
    # 16 samples are left: four steps of four.
    assert json.loads((tmp_path / "one" / "result.json").read_text())["steps"] == 6


def test_what_cannot_be_resumed_is_refused(tmp_path: Path) -> None:
    short = ("debug=fast_run", "tracking=csv")
    ended_well(xlaexp(*short, "hydra.run.dir=run", cwd=tmp_path))
    ended = xlaexp(*short, "hydra.run.dir=run", cwd=tmp_path)
    assert (ended.code, "go on with it by resume=auto" in ended.stderr) == (2, True)
    ended = xlaexp(*short, "resume=nowhere", cwd=tmp_path)
    assert ended.code != 0
    assert "nowhere: there is no checkpoint" in ended.stderr
    ended = xlaexp(*short, "resume=run", "model.hidden=[7]", cwd=tmp_path)
    assert ended.code != 0
    assert "is the state of another model or optimizer" in ended.stderr
    before = sorted((tmp_path / "run").rglob("*"))
    ended = ended_well(go_on(tmp_path / "run", *short, cwd=tmp_path))  # it is over, and stays so
    assert sorted((tmp_path / "run").rglob("*")) == before


def test_a_full_disk_leaves_the_checkpoint_before_intact(tmp_path: Path) -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    short = (*MLP, "train.max_steps=8", "tracking=csv", "hydra.run.dir=run")
    ended_well(xlaexp(*short, cwd=tmp_path))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    del hard
