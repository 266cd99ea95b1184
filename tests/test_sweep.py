"""Sweeps: a process for each job, and what becomes of a job that fails, of a sweep that is killed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from fresh import Ended, call, output, xlaexp
from test_host_and_files import RESULT

from xlaexp.config.resolvers import job_directory
from xlaexp.sweep.ledger import Entry, Ledger
from xlaexp.sweep.results import rows

FAST = ("train.epochs=1", "optimizer=sgd", "tracking=csv", "hydra.sweep.dir=sweep")
TROUBLED = ("data=user_package.parts.Troubled", "loader.batch_size=8", "train.epochs=1", "hydra.sweep.dir=sweep")


def jobs(sweep: Path) -> list[dict[str, Any]]:
    content: list[dict[str, Any]] = json.loads((sweep / "sweep.json").read_text())["jobs"]
    return content


def ended_well(ended: Ended) -> Ended:
    assert ended.code == 0, ended.stdout + ended.stderr
    return ended


def weights(directory: Path) -> dict[str, torch.Tensor]:
    state: dict[str, torch.Tensor] = torch.load(directory / "checkpoints" / "last.pt", weights_only=True)["model"]
    return state


def start(*overrides: str, cwd: Path) -> "subprocess.Popen[bytes]":
    with (cwd / "started.log").open("ab") as out:
        return subprocess.Popen(
            [sys.executable, "-m", "xlaexp", *overrides],
            cwd=cwd,
            stdout=out,
            stderr=out,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )


def processes_in(directory: Path) -> list[int]:
    """Processes whose working directory is ``directory``."""
    found = []
    for pid in Path("/proc").iterdir():
        if pid.name.isdigit():
            try:
                if (pid / "cwd").resolve() == directory.resolve() and int(pid.name) != os.getpid():
                    found.append(int(pid.name))
            except OSError:
                continue
    return found


@pytest.mark.parametrize("devices", ["single,multi", "multi,single"])
def test_a_sweep_changes_device_and_loader(devices: str, tmp_path: Path) -> None:
    ended = xlaexp("-m", f"device={devices}", "loader=plain,mp_device_loader", *FAST, cwd=tmp_path)
    ended_well(ended)
    done = jobs(tmp_path / "sweep")
    assert [job["state"] for job in done] == ["done"] * 4
    assert "4 jobs: 4 done" in ended.stdout
    for job in done:
        assert (tmp_path / "sweep" / job["directory"] / "result.json").exists()


def test_equal_jobs_give_equal_weights_and_those_of_a_plain_run(tmp_path: Path) -> None:
    ended_well(xlaexp("-m", "seed=0,0", *FAST, cwd=tmp_path))
    ended_well(xlaexp("seed=0", *FAST, cwd=tmp_path))
    states = [weights(tmp_path / "sweep" / job["directory"]) for job in jobs(tmp_path / "sweep")]
    states.append(weights(output(tmp_path)))
    assert len(states) == 3
    for state in states[1:]:
        assert all(torch.equal(state[name], states[0][name]) for name in state)


def test_options_of_the_launcher_are_checked(tmp_path: Path) -> None:
    ended = xlaexp("-m", "seed=0", *FAST, "hydra.launcher.n_jobs=0", cwd=tmp_path)
    assert ended.code == 2
    assert "n_jobs has to be 1 or more" in ended.stderr


def test_case_33_directories_of_jobs_are_safe() -> None:
    assert job_directory(3, "a=1__b=x/y,z w") == "3__a=1__b=x-y-z-w"
    assert job_directory(0, "") == "0"
    long = [job_directory(0, "x" * 400 + end) for end in "ab"]
    assert long[0] != long[1]
    assert max(map(len, long)) < 150


def show(directory: str) -> None:
    from xlaexp.sweep.__main__ import main

    sys.argv = ["sweep", "show", directory]
    main()


def test_results_are_shown_again_for_a_sweep_that_still_runs_too(tmp_path: Path) -> None:
    entries = [
        Entry(0, ["lr=0.1", "x=1"], "0", "done", 1, 0.5, started=1.0, ended=3.0),
        Entry(1, ["lr=0.2", "x=1"], "1", "failed", 2, reason="ended by SIGKILL", started=1.0, ended=3.0),
        Entry(2, ["lr=0.3", "x=1"], "2", "done", 1, 0.75, started=1.0, ended=3.0),
        Entry(3, ["lr=0.4", "x=1"], "3", "queued"),
    ]
    ledger = Ledger(tmp_path, entries)
    columns, table = rows(ledger, "max")
    assert columns[:4] == ["job", "lr", "state", "objective"]  # x was the same in all jobs
    assert [row[0] for row in table] == ["2", "0", "1", "3"]
    assert [row[0] for row in rows(ledger, "min")[1]] == ["0", "2", "1", "3"]
    ledger.write()
    assert Ledger.read(tmp_path) == ledger
    ended = ended_well(call(show, str(tmp_path), cwd=tmp_path))
    assert "4 jobs: 2 done, 1 failed, 1 queued" in ended.stdout
    assert "ended by SIGKILL" in ended.stdout


def test_a_ledger_tells_equal_jobs_apart_and_believes_results(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, [Entry(0, ["seed=0"], "0", "running", 1), Entry(1, ["seed=0"], "1", "running", 1)])
    found = ledger.find([["seed=0"], ["seed=0"], ["seed=0"], ["seed=1"]])
    assert [entry.number if entry else None for entry in found] == [0, 1, None, None]
    ledger.write()
    (tmp_path / "1").mkdir()
    RESULT.write(tmp_path / "1")  # the job ended, the sweep was killed before it noticed
    again = Ledger.read(tmp_path)
    assert [entry.state for entry in again.entries] == ["running", "running"]  # of a sweep that runs, they do
    again.recover()
    assert [(entry.state, entry.objective) for entry in again.entries] == [("queued", None), ("done", 0.5)]


def test_a_job_that_is_started_again_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    slow = ("seed=0,1", "train.epochs=15", "resume=auto", "tracking=csv", "optimizer=sgd", "hydra.sweep.dir=sweep")
    sweep = start("-m", *slow, cwd=tmp_path)
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("sweep/*/checkpoints/last.pt")) and time.monotonic() < deadline:
        time.sleep(0.02)
    sweep.kill()
    sweep.wait()
    ended = ended_well(xlaexp("-m", *slow, cwd=tmp_path))
    assert "2 jobs: 2 done" in ended.stdout
    first = jobs(tmp_path / "sweep")[0]
    said = (tmp_path / "sweep" / first["directory"] / "xlaexp.log").read_text()
    assert "goes on from" in said
    assert json.loads((tmp_path / "sweep" / first["directory"] / "result.json").read_text())["epochs"] == 15
    assert not (tmp_path / "sweep" / "attempts").exists()
