"""A run that goes on from a checkpoint ends as if nothing had happened, to the bit."""

import csv
import json
import os
import shutil
import signal
import struct
import time
import zipfile
from pathlib import Path
from typing import Any

import in_training
import pytest
import torch
from fresh import Begun, Ended, call, limited, main, xlaexp
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from test_replicas import on_replicas
from test_sweep import ended_well
from torch.utils._pytree import tree_leaves

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
    assert_equal(states[0], states[1])


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
        ("single", "plain", (4, 22), MLP),
        ("single", "mp_device_loader", (12,), (*MLP, "loader.batches_per_execution=2")),
        ("multi", "plain", (12,), CNN),
        ("multi", "mp_device_loader", (8,), (*MLP, "train.accumulate=2", "train.max_steps=15")),
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


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output directory of a run with the options MLP."""
    directory = tmp_path_factory.mktemp("whole")
    ended_well(xlaexp(*MLP, "hydra.run.dir=run", cwd=directory))
    return directory / "run"


def test_a_killed_run_goes_on_in_its_directory(whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "killed")
    # As if it had been killed after step 26, with a file half written.
    for number in (28, 30):
        (tmp_path / "killed" / "checkpoints" / f"step-{number:08}.pt").unlink(missing_ok=True)
    (tmp_path / "killed" / "checkpoints" / "best.pt").unlink()
    (tmp_path / "killed" / "checkpoints" / ".step-00000028.pt.77").write_bytes(b"half")
    (tmp_path / "killed" / "result.json").unlink()
    ended = ended_well(go_on(tmp_path / "killed", *MLP, cwd=tmp_path))
    assert "step-00000024.pt, after step 24" in ended.stdout
    assert_same_end(tmp_path / "killed", whole)
    assert rows(tmp_path / "killed") == rows(whole)
    assert scalars(tmp_path / "killed") == scalars(whole)
    assert not list((tmp_path / "killed" / "checkpoints").glob(".*"))
    environment = json.loads((tmp_path / "killed" / "environment.json").read_text())
    assert len(environment["before"]) == 1


@pytest.mark.parametrize("device", ["single", "multi"])
def test_a_signal_saves_at_the_next_step(device: str, tmp_path: Path) -> None:
    length = ("train.max_steps=300", "train.epochs=60", "checkpoint.every=250", "train.eval_every=10")
    command = (*MLP, *length, f"device={device}", "tracking=csv")
    ended_well(xlaexp(*command, "hydra.run.dir=whole", cwd=tmp_path))
    for signum, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
        directory = tmp_path / signum.name
        run = Begun(main, *command, f"hydra.run.dir={directory}", cwd=tmp_path)
        deadline = time.monotonic() + 60
        while "step 10/" not in log(directory) and time.monotonic() < deadline:
            time.sleep(0.01)
        if signum == signal.SIGINT:
            os.killpg(run.pid, signum)  # as a terminal does
        else:
            os.kill(run.pid, signum)
        ended = run.end(30)
        assert (ended.code, run.left()) == (code, False), ended.stdout + ended.stderr
        assert not (directory / "failure.json").exists()
        step = checkpoint(directory)["step"]
        assert 10 <= step < 300
        assert f"stopped by {signum.name} after step {step}" in log(directory)
        ended_well(go_on(directory, *command, cwd=tmp_path))
        assert_same_end(directory, tmp_path / "whole")
        assert rows(directory) == rows(tmp_path / "whole")


def log(directory: Path) -> str:
    path = directory / "xlaexp.log"
    return path.read_text() if path.exists() else ""


def damage(path: Path, how: str) -> None:
    content = bytearray(path.read_bytes())
    if how == "flipped":
        with zipfile.ZipFile(path) as archive:
            largest = max(archive.infolist(), key=lambda part: part.file_size)
        name, extra = struct.unpack_from("<HH", content, largest.header_offset + 26)
        content[largest.header_offset + 30 + name + extra + largest.file_size // 2] ^= 4
    path.unlink()  # last.pt and best.pt are other names of the same file
    path.write_bytes({"truncated": content[:-100], "empty": bytearray()}.get(how, content))


@pytest.mark.parametrize("how", ["truncated", "flipped", "empty"])
def test_of_damaged_checkpoints_the_one_before_is_used(how: str, whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "run")
    damage(tmp_path / "run" / "checkpoints" / "step-00000030.pt", how)
    (tmp_path / "run" / "checkpoints" / "last.pt").unlink()
    ended = ended_well(go_on(tmp_path / "run", *MLP, cwd=tmp_path))
    assert "step-00000030.pt is damaged" in ended.stdout
    assert "step-00000028.pt is used instead" in ended.stdout
    assert_same_end(tmp_path / "run", whole)


def test_case_24_with_another_number_of_replicas_the_samples_go_on(tmp_path: Path) -> None:
    data = ("data=fake", "data.shape=[4]", "data.train_size=32", "data.val_size=8", "loader.batch_size=4")
    short = (*data, "optimizer=sgd", "tracking=csv", "checkpoint.unit=step", "train.epochs=2")
    ended_well(xlaexp(*short, "device=multi", "train.max_steps=2", "hydra.run.dir=two", cwd=tmp_path))
    assert checkpoint(tmp_path / "two")["samples"] == 16
    ended = ended_well(xlaexp(*short, "resume=two", "hydra.run.dir=one", "train.epochs=1", cwd=tmp_path))
    assert "the numbers will differ" in ended.stdout
    # 16 samples are left: four steps of four.
    assert json.loads((tmp_path / "one" / "result.json").read_text())["steps"] == 6


def test_case_23_a_checkpoint_is_on_the_cpu_and_what_it_restores_on_the_device(tmp_path: Path) -> None:
    data = ("data=fake", "data.shape=[1,4,4]", "data.train_size=64", "data.val_size=8", "loader.batch_size=8")
    model = ("model=cnn", "model.channels=[2]", "optimizer=adam", "train.ema_decay=0.9", "device=multi")
    ended_well(xlaexp(*data, *model, "callbacks=early_stopping", "train.epochs=1", "hydra.run.dir=run", cwd=tmp_path))
    content = checkpoint(tmp_path / "run")
    tensors = [leaf for leaf in tree_leaves(content) if isinstance(leaf, torch.Tensor)]
    assert {tensor.device.type for tensor in tensors} == {"cpu"}
    moments = {
        f"{number}.{name}": state[name]
        for number, state in content["optimizer"]["state"].items()
        for name in ("exp_avg", "exp_avg_sq")
    }
    assert len(moments) == 10
    on_replicas(in_training.restored, tmp_path, *data, *model, "resume=run")
    for ordinal in range(2):
        places = json.loads((tmp_path / f"places-{ordinal}.json").read_text())
        assert places == {key: [f"xla:{ordinal}"] for key in ("parameters", "buffers", "averages", "moments")}
        assert_equal(torch.load(tmp_path / f"moments-{ordinal}.pt", weights_only=True), moments)


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


def test_a_full_disk_leaves_the_checkpoint_before_intact(whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "run")
    checkpoints = tmp_path / "run" / "checkpoints"
    for left in (checkpoints / "step-00000030.pt", tmp_path / "run" / "result.json"):
        left.unlink()
    before = (checkpoints / "step-00000028.pt").read_bytes()
    resume = (*MLP, "hydra.run.dir=run", "resume=auto")
    ended = call(limited, len(before) // 2, *resume, cwd=tmp_path)
    assert ended.code == 1
    assert "a checkpoint could not be written into" in ended.stderr
    assert "MiB are free" in ended.stderr
    assert (checkpoints / "step-00000028.pt").read_bytes() == before
    assert not list(checkpoints.glob(".*"))
    ended_well(xlaexp(*resume, cwd=tmp_path))  # with room for it
    assert_same_end(tmp_path / "run", whole)


def test_an_output_directory_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for directory in ("/proc/run", tmp_path / "file" / "run"):
        ended = xlaexp("debug=fast_run", f"hydra.run.dir={directory}", cwd=tmp_path)
        assert ended.code == 2
        assert f"hydra.run.dir: {directory} cannot be written" in ended.stderr
        assert "Traceback" not in ended.stderr
