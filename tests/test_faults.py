"""What goes wrong in the middle of a run ends it, with the reason, and leaves nothing behind."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import in_replica
import pytest
import torch
from fresh import Begun, Ended, call, main, output, xlaexp

FAULTY = ("plugins=[user_package]", "loader.batch_size=8", "train.epochs=2", "tracking=csv", "optimizer=sgd")
BOTH = pytest.mark.parametrize("loader", ["plain", "mp_device_loader"])
DEVICES = pytest.mark.parametrize("device", ["single", "multi"])


def failed(ended: Ended, cwd: Path) -> tuple[dict[str, object], str]:
    """What a run that has failed says of it: ``failure.json``, and its log."""
    assert ended.code == 1, ended.stdout + ended.stderr
    assert not (output(cwd) / "result.json").exists()
    failure = json.loads((output(cwd) / "failure.json").read_text())
    assert failure["message"].splitlines()[0] in ended.stderr
    return failure, (output(cwd) / "xlaexp.log").read_text()


@BOTH
@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("where", ["sample", "collation"])
def test_what_a_data_set_raises_is_said_with_its_sample(where: str, workers: int, loader: str, tmp_path: Path) -> None:
    data = ("data=user_package.faulty.Faulty", f"data.fault={where}", f"loader.num_workers={workers}")
    failure, log = failed(xlaexp(*FAULTY, *data, f"loader={loader}", cwd=tmp_path), tmp_path)
    assert failure["error"] == "SampleError"
    if where == "sample":
        assert str(failure["message"]).startswith("RuntimeError: sample 5 is broken (in sample 5)")
        assert "in __getitem__" in log  # the user's own line
    else:
        assert "(in the collation of samples " in str(failure["message"])
        assert "RuntimeError: stack expects each tensor to be equal size" in str(failure["message"])


@BOTH
def test_a_killed_loader_worker_ends_the_run(loader: str, tmp_path: Path) -> None:
    data = ("data=user_package.faulty.Faulty", "data.fault=killed", "loader.num_workers=1")
    failure, _ = failed(xlaexp(*FAULTY, *data, f"loader={loader}", cwd=tmp_path), tmp_path)
    assert "DataLoader worker" in str(failure["message"])


@DEVICES
@BOTH
def test_a_replica_that_hangs_ends_the_run_with_what_it_was_doing(loader: str, device: str, tmp_path: Path) -> None:
    hang = ("data=user_package.faulty.Faulty", "data.fault=hang", "device.timeout=8")
    run = Begun(main, *FAULTY, *hang, f"device={device}", f"loader={loader}", cwd=tmp_path)
    failure, _ = failed(run.end(100), tmp_path)
    ordinal = int((tmp_path / "hangs").read_text())
    assert (failure["error"], failure["replica"]) == ("HangError", ordinal)
    assert "its last step was " in str(failure["message"])
    (stacks,) = output(tmp_path).glob("hang-*.txt")
    assert "in __getitem__" in stacks.read_text()
    assert "faulty.py" in stacks.read_text()
    assert not run.left()


def test_a_hang_with_the_gil_held_ends_the_run(tmp_path: Path) -> None:
    hang = ("data=user_package.faulty.Faulty", "data.fault=gil", "device.timeout=4")
    run = Begun(main, *FAULTY, *hang, cwd=tmp_path)
    assert run.end(100).code == 1
    (stacks,) = output(tmp_path).glob("hang-*.txt")
    assert "in __getitem__" in stacks.read_text()
    assert not run.left()


def test_a_timeout_that_is_kept_leaves_nothing(tmp_path: Path) -> None:
    ended = xlaexp("debug=fast_run", "device=multi", "device.timeout=100", cwd=tmp_path)
    assert ended.code == 0, ended.stderr
    assert not list(output(tmp_path).glob("hang-*"))


@DEVICES
def test_a_killed_replica_ends_the_run(device: str, tmp_path: Path) -> None:
    run = Begun(main, *FAULTY, "data=user_package.faulty.Faulty", "data.fault=dies", f"device={device}", cwd=tmp_path)
    ended = run.end(60)
    if device == "single":
        assert ended.code == -signal.SIGKILL
    else:
        assert ended.code == 1
        assert "a process of replicas died without a word" in ended.stderr
    assert not run.left()


@DEVICES
@BOTH
def test_a_loss_that_is_no_number_keeps_the_last_good_checkpoint(loader: str, device: str, tmp_path: Path) -> None:
    data = ("data=user_package.faulty.Faulty", "data.fault=nonfinite", "checkpoint.unit=step", "checkpoint.every=2")
    options = (*FAULTY, *data, f"loader={loader}", f"device={device}", "train.log_every=3")
    failure, _ = failed(xlaexp(*options, "checkpoint.keep_last=9", cwd=tmp_path), tmp_path)
    assert failure["error"] == "NonFiniteError"
    assert "the training loss became nan in one of the steps " in str(failure["message"])
    paths = sorted((output(tmp_path) / "checkpoints").glob("*.pt"))
    assert len(paths) > 1
    for path in paths:
        weights = torch.load(path, weights_only=True)["model"]
        assert all(bool(tensor.isfinite().all()) for tensor in weights.values())


def test_on_request_a_loss_that_is_no_number_is_a_warning(tmp_path: Path) -> None:
    options = (*FAULTY, "data=user_package.faulty.Faulty", "data.fault=nonfinite", "train.on_nonfinite=warn")
    ended = xlaexp(*options, cwd=tmp_path)
    assert ended.code == 0, ended.stderr
    assert "the training loss became nan" in ended.stdout


@pytest.mark.parametrize("threads", [1, 3])
def test_batches_come_through_mp_device_loader_as_they_are(threads: int, tmp_path: Path) -> None:
    ended = call(in_replica.feeds, threads, cwd=tmp_path, env={"PJRT_DEVICE": "CPU"})
    assert ended.code == 0, ended.stderr
    assert ended.value == "well"


def test_replicas_mark_in_the_same_places_with_several_transfer_threads(tmp_path: Path) -> None:
    ends = []
    for threads in (1, 3):
        (tmp_path / str(threads)).mkdir()
        options = ("device=multi", "loader=mp_device_loader", f"loader.host_to_device_transfer_threads={threads}")
        short = ("loader.device_prefetch_size=1", "train.epochs=5", "optimizer=sgd", "tracking=csv")
        ended = xlaexp(*options, *short, "loader.batch_size=8", cwd=tmp_path / str(threads))
        assert ended.code == 0, ended.stderr
        content = torch.load(output(tmp_path / str(threads)) / "checkpoints" / "last.pt", weights_only=True)
        ends.append(content["model"])
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


def test_runs_that_are_killed_again_and_again_end_as_if_nothing_had_happened(tmp_path: Path) -> None:
    script = Path(__file__).parent.parent / "scripts" / "faults.py"
    command = [sys.executable, str(script), "--kills=3", "--corruptions=2", "--cells=single+plain", f"--in={tmp_path}"]
    started = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, env={**os.environ})
    assert done.returncode == 0, done.stdout + done.stderr + f"{time.monotonic() - started:.0f} s"
    assert "3 of 3 kills survived, 2 of 2 corruptions survived, nothing lost" in done.stdout
