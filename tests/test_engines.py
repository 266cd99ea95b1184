"""Sweeps on engines that are not ours: joblib, submitit and Slurm, Ray, and Hydra's own basic launcher."""

import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from composing import config
from fresh import xlaexp
from omegaconf import OmegaConf
from test_sweep import jobs, processes_in
from test_sweep_trouble import until

from xlaexp.config import engines
from xlaexp.config.errors import ConfigError

TINY = ("debug=fast_run", "optimizer=sgd", "tracking=csv", "hydra.sweep.dir=sweep")
TROUBLED = "# @package _global_\ndefaults:\n  - override /data: user_package.parts.Troubled\n"
JOBS = {
    "a_killed": "data: {job: 3}\n",
    "b_aborted": "data: {job: 2}\n",
    "c_well": "data: {job: 5}\ndevice: {launch: multi}\n",
}
REASONS = {"a_killed": "ended by SIGKILL", "b_aborted": "ended by SIGABRT"}
# One worker for all jobs, where an engine has such: it has to survive them.
ENGINES = {
    "joblib": ("hydra.launcher.n_jobs=1",),
    "ray": ("hydra.launcher.ray.init.address=local", "+hydra.launcher.ray.init.num_cpus=1"),
    "submitit_local": ("hydra.launcher.timeout_min=5",),
}

# As Slurm runs an array, without a queue: what submitit gives it is run. Like Slurm's, this sbatch runs a copy of the
# script (submitit moves its own as soon as it knows the job's number), and sacct says when a job has ended.
SLURM = {
    "sbatch": """
export SLURM_JOB_ID=7 SLURM_ARRAY_JOB_ID=7 SLURM_NTASKS=1 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0
export SLURM_JOB_NUM_NODES=1 SLURM_JOB_NODELIST=localhost
cp "$1" submitted.sh
for task in 0 1; do
    (SLURM_ARRAY_TASK_ID=$task sh submitted.sh; touch ended-$task) > task-$task.log 2>&1 &
done
echo "Submitted batch job 7"
""",
    "srun": """
while [ "${1#--}" != "$1" ]; do [ "$1" = --unbuffered ] && shift || shift 2; done
exec "$@"
""",
    "sacct": """
echo "JobID|State|NodeList"
for task in 0 1; do
    [ -e ended-$task ] && state=COMPLETED || state=RUNNING
    echo "7_$task|$state|localhost"
done
""",
}


def sweep(*overrides: str, cwd: Path, env: Mapping[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    """``python -m xlaexp -m OVERRIDES``, as a user gives it."""
    # Ray writes a token into the home directory else.
    environ = {**os.environ, "RAY_AUTH_MODE": "disabled", "COLUMNS": "150", **(env or {})}
    command = [sys.executable, "-m", "xlaexp", "-m", *overrides]
    return subprocess.run(command, cwd=cwd, env=environ, capture_output=True, text=True, timeout=250, check=False)


def own_modules(directory: Path) -> None:
    """A user's modules and configs, in the directory that a command is given in."""
    (directory / "user_package").symlink_to(Path(__file__).parent / "user_package")
    for name, text in JOBS.items():
        path = directory / "conf" / "experiment" / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{TROUBLED}{text}")


@pytest.mark.parametrize("engine", ENGINES)
def test_jobs_fail_and_are_run_again_on_every_engine(engine: str, tmp_path: Path) -> None:
    own_modules(tmp_path)
    (tmp_path / "broken").touch()
    # Each job pays for the imports; what a second one that fails could say is the same on every engine.
    names = [name for name in JOBS if engine == "joblib" or name != "b_aborted"]
    which = ("--config-dir", "conf", f"experiment={','.join(names)}", "loader.batch_size=8")
    command = (*which, *TINY, f"hydra/launcher={engine}", *ENGINES[engine])
    ended = sweep(*command, cwd=tmp_path)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    first = jobs(tmp_path / "sweep")
    assert [job["state"] for job in first] == ["done" if name == "c_well" else "failed" for name in names]
    for name, job in zip(names[:-1], first[:-1], strict=True):
        assert job["reason"] == REASONS[name]
        assert REASONS[name] in (tmp_path / "sweep" / job["directory"] / "xlaexp.log").read_text()
        assert REASONS[name] in ended.stdout
    assert ended.stderr.splitlines()[-2] == "job 0 failed: ended by SIGKILL"
    assert "Traceback" not in ended.stdout + ended.stderr

    (tmp_path / "broken").unlink()
    ended = sweep(*command, cwd=tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    second = jobs(tmp_path / "sweep")
    assert [(job["state"], job["attempts"]) for job in second] == [("done", 2)] * (len(names) - 1) + [("done", 1)]
    assert second[-1] == first[-1]
    assert f"{len(names)} jobs: {len(names)} done" in ended.stdout
    assert len((tmp_path / "sweep" / "results.csv").read_text().splitlines()) == len(names) + 1
    archives = list((tmp_path / "sweep" / "attempts").iterdir())
    assert len(archives) == len(names) - 1
    for path in archives:
        with tarfile.open(path) as archive:
            assert "./xlaexp.log" in archive.getnames()
    until(lambda: not processes_in(tmp_path), 15)


def test_hydras_own_launcher_changes_the_device(tmp_path: Path) -> None:
    ended = sweep("device=single,multi", *TINY, "hydra/launcher=basic", cwd=tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert [job["state"] for job in jobs(tmp_path / "sweep")] == ["done", "done"]
    assert "2 jobs: 2 done" in ended.stdout


def test_a_sweep_on_slurm(tmp_path: Path) -> None:
    for name, text in SLURM.items():
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}")
        path.chmod(0o755)
    options = ("partition=long", "timeout_min=60", "array_parallelism=2")
    ended = sweep(
        *("device=single,multi", *TINY, "hydra/launcher=submitit_slurm"),
        *(f"hydra.launcher.{option}" for option in options),
        cwd=tmp_path,
        env={"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"},
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert [job["state"] for job in jobs(tmp_path / "sweep")] == ["done", "done"]
    submitted = (tmp_path / "submitted.sh").read_text()
    for line in ("--partition=long", "--time=60", "--array=0-1%2"):
        assert f"#SBATCH {line}\n" in submitted


def test_a_search_with_several_objectives_on_joblib(tmp_path: Path) -> None:
    ended = sweep(
        # All cores but one; Optuna is to ask for as many trials at a time.
        *(*TINY, "hydra/launcher=joblib", "hydra.launcher.n_jobs=-2"),
        *("hydra/sweeper=optuna", "hydra/sweeper/sampler=random"),
        *("hydra.sweeper.n_trials=2", "optimizer.lr=interval(0.01,0.1)"),
        *("objective.metric=[val/accuracy,val/loss]", "objective.mode=[max,min]"),
        cwd=tmp_path,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    done = jobs(tmp_path / "sweep")
    assert [job["state"] for job in done] == ["done", "done"]
    found = OmegaConf.to_container(OmegaConf.load(tmp_path / "sweep" / "optimization_results.yaml"))
    assert isinstance(found, dict)
    values = [list(job["objectives"].values()) for job in done]
    assert found["solutions"]
    assert all(solution["values"] in values for solution in found["solutions"])


def test_a_killed_command_takes_joblibs_jobs_with_it(tmp_path: Path) -> None:
    own_modules(tmp_path)
    (tmp_path / "broken").touch()
    # They sleep.
    troubled = ("data=user_package.parts.Troubled", "data.job=4,4", "loader.batch_size=8", *TINY)
    command = [sys.executable, "-m", "xlaexp", "-m", *troubled, "hydra/launcher=joblib", "hydra.launcher.n_jobs=1"]
    with (tmp_path / "output.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log)
    until(lambda: bool(list(tmp_path.glob("sweep/*/environment.json"))), 100)
    process.send_signal(signal.SIGKILL)
    process.wait()
    until(lambda: not processes_in(tmp_path), 15)


@pytest.mark.parametrize(
    ("engine", "option", "advice"),
    [
        ("joblib", "reuse=true", "reused workers are there only with hydra/launcher=xlaexp, not with"),
        ("basic", "n_jobs=2", "only with hydra/launcher=xlaexp, not with hydra/launcher=basic; leave it out"),
        ("ray", "n_jobs=2", "hydra/launcher=ray calls it +hydra.launcher.ray.init.num_cpus=N"),
        (
            "submitit_local",
            "timeout=60",
            "hydra/launcher=submitit_local calls it hydra.launcher.timeout_min=N, in minutes",
        ),
        ("submitit_slurm", "n_jobs=2", "hydra/launcher=submitit_slurm calls it hydra.launcher.array_parallelism=N"),
    ],
)
def test_an_option_that_an_engine_does_not_have_is_explained(engine: str, option: str, advice: str) -> None:
    with pytest.raises(ConfigError) as error:
        config(f"hydra/launcher={engine}", f"hydra.launcher.{option}")
    assert advice in str(error.value)


@pytest.mark.parametrize(
    ("engine", "option", "advice"),
    [
        ("joblib", "+hydra.launcher.reuse=true", "not with hydra/launcher=joblib"),
        ("joblib", "hydra.launcher.n_jobs=0", "n_jobs == 0"),
        ("submitit_slurm", "model.hiden=3", "did you mean 'model.hidden'"),
    ],
)
def test_a_wrong_config_starts_no_engine(engine: str, option: str, advice: str, tmp_path: Path) -> None:
    ended = xlaexp("-m", "seed=0,1", *TINY, f"hydra/launcher={engine}", option, cwd=tmp_path)
    assert ended.code == 2, ended.stdout + ended.stderr
    assert advice in ended.stderr
    assert not (tmp_path / "sweep").exists()


def test_an_engine_that_is_not_installed_is_explained() -> None:
    assert "pip install 'xlaexp[ray]'" in engines.unknown_launcher("ray", ["basic", "xlaexp"])
    assert "pip install 'xlaexp[submitit]'" in engines.unknown_launcher("submitit_slurm", ["basic", "xlaexp"])
    assert "did you mean 'ray'" in engines.unknown_launcher("rai", ["basic", "xlaexp"])


def test_an_engine_that_breaks_is_explained(tmp_path: Path) -> None:
    address = "hydra.launcher.ray.init.address=not:an:address"
    ended = sweep("seed=0,1", *TINY, "hydra/launcher=ray", address, cwd=tmp_path)
    assert ended.returncode == 1
    assert "hydra/launcher=ray has ended early: " in ended.stderr
    assert "Traceback" not in ended.stderr
