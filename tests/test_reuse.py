"""Workers that take several jobs: the numbers of fresh processes, and nothing compiled twice."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest
from fresh import xlaexp
from test_sweep import ended_well, jobs, weights

REUSE = "hydra.launcher.reuse=true"
SHORT = ("optimizer=sgd", "hydra.sweep.dir=sweep")
LEAKY = ("data=user_package.leaky.Leaky", "loader.batch_size=8", "train.epochs=1", *SHORT)


def results(sweep: Path) -> list[dict[str, Any]]:
    return [json.loads((sweep / job["directory"] / "result.json").read_text()) for job in jobs(sweep)]


def numbers(directory: Path) -> list[dict[str, str]]:
    """The rows of metrics.csv without what is measured in seconds."""
    with (directory / "metrics.csv").open() as file:
        return [{k: v for k, v in row.items() if not k.endswith("_per_s")} for row in csv.DictReader(file)]


@pytest.mark.parametrize("device", ["single", "multi"])
def test_a_reused_worker_gives_the_numbers_of_a_fresh_one_and_compiles_nothing(device: str, tmp_path: Path) -> None:
    command = ("-m", "seed=0,1,0", f"device={device}", "model.dropout=0.3", "train.epochs=2", *SHORT)
    for name, reuse in (("fresh", "false"), ("reused", "true")):
        (tmp_path / name).mkdir()
        ended_well(xlaexp(*command, f"hydra.launcher.reuse={reuse}", cwd=tmp_path / name))
    fresh, reused = tmp_path / "fresh" / "sweep", tmp_path / "reused" / "sweep"
    first, *others = [result["compilations"] for result in results(reused)]
    assert others == [0, 0]
    assert [result["compilations"] for result in results(fresh)] == [first] * 3
    for job in jobs(fresh):
        one, other = fresh / job["directory"], reused / job["directory"]
        state = weights(other)
        assert all(tensor.equal(state[name]) for name, tensor in weights(one).items())
        assert numbers(one) == numbers(other) != []
        assert len(list(other.glob("tb/events*"))) == 1
        # Nothing that another job says is in this one's log.
        assert (other / "xlaexp.log").read_text().count("replicas on") == (device == "multi")
        assert (other / "console.log").read_text().count("Run finished") == 1


def test_nothing_that_a_job_leaves_in_its_process_reaches_the_next(tmp_path: Path) -> None:
    ended_well(xlaexp("-m", "data.job=0,1,2", *LEAKY, REUSE, cwd=tmp_path))
    sweep = tmp_path / "sweep"
    assert [result["compilations"] > 0 for result in results(sweep)] == [True, False, False]
    logs = [(sweep / job["directory"] / "xlaexp.log").read_text() for job in jobs(sweep)]
    draws = [re.findall("draws: (.*)", log) for log in logs]
    assert draws[0] == draws[1] == draws[2]
    assert len(draws[0]) == 1


def test_a_worker_that_died_or_is_not_clean_is_replaced(tmp_path: Path) -> None:
    command = ("-m", "data.abort=false,true", "data.thread=true,false", "data.job=0,1", *LEAKY, REUSE)
    ended = xlaexp(*command, cwd=tmp_path)
    assert ended.code == 1
    found = jobs(tmp_path / "sweep")
    assert [job["state"] for job in found] == ["done"] * 4 + ["failed"] * 4
    assert {job["reason"] for job in found[4:]} == {"ended by SIGABRT"}
    done = [job["directory"] for job in found[:4]]
    compiled = [json.loads((tmp_path / "sweep" / job / "result.json").read_text())["compilations"] for job in done]
    # The first two have left a thread behind, so that their processes were not used again.
    assert [bool(count) for count in compiled] == [True, True, True, False]


def test_jobs_of_another_kind_get_another_worker(tmp_path: Path) -> None:
    # XLA reads its flags from the environment once, so that a variable makes another kind, too.
    presets = tmp_path / "presets" / "experiment"
    presets.mkdir(parents=True)
    for name in "ab":
        text = f"# @package _global_\nhydra: {{job: {{env_set: {{MARK: {name}}}}}}}\n"
        (presets / f"{name}.yaml").write_text(text)
    command = ("--config-dir", "presets", "-m", "device=single,multi", "optimizer.lr=0.1,0.2", "experiment=a,b")
    ended_well(xlaexp(*command, "train.epochs=1", *SHORT, REUSE, cwd=tmp_path))
    compiled: dict[tuple[str, str], list[bool]] = {}
    for job, result in zip(jobs(tmp_path / "sweep"), results(tmp_path / "sweep"), strict=True):
        device, _, preset, *_ = job["overrides"]
        compiled.setdefault((device, preset), []).append(result["compilations"] > 0)
    assert list(compiled.values()) == [[True, False]] * 4


def test_reuse_is_refused_where_replicas_are_processes(tmp_path: Path) -> None:
    ended = xlaexp("-m", "device=multi", *SHORT, REUSE, cwd=tmp_path, env={"PJRT_DEVICE": "TPU"})
    assert ended.code == 2
    assert "hydra.launcher.reuse=false, or device=single" in ended.stderr
