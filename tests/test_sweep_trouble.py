"""Trouble: jobs that fail in every way, sweeps that are killed at any moment, and what is left then."""

import csv
import multiprocessing
import random
import signal
import tarfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from fresh import call, main, xlaexp
from test_sweep import FAST, TROUBLED, ended_well, jobs, processes_in, show, start

from xlaexp.sweep import processes
from xlaexp.sweep.ledger import Ledger, owned

JOBS, KILLS = 16, 10
TINY = (
    *("-m", f"seed=range({JOBS})", "data=user_package.parts.PoisonedData", "data.at=-1", "data.samples=8"),
    *("loader.batch_size=8", "train.epochs=1", "optimizer=sgd", "tracking=csv", "hydra.sweep.dir=sweep"),
    *("hydra.launcher.n_jobs=2", "+hydra.callbacks.journal._target_=user_package.callbacks.Journal"),
    "+hydra.callbacks.journal.file=journal.txt",
)


def until(condition: Callable[[], bool], seconds: float) -> None:
    """Waits for a condition; raises if it does not come true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_case_29_and_30_failing_jobs_stop_nothing_and_are_run_again(tmp_path: Path) -> None:
    (tmp_path / "broken").touch()
    command = ("-m", "data.job=range(12)", *TROUBLED, "hydra.launcher.n_jobs=2", "hydra.launcher.timeout=15")
    ended = xlaexp(*command, cwd=tmp_path)
    assert ended.code == 1
    first = jobs(tmp_path / "sweep")
    assert [job["state"] for job in first] == ["failed"] * 5 + ["done"] * 7
    reasons = [job["reason"] for job in first[:5]]
    assert reasons[0] == "replica 0 failed: RuntimeError: this job is troubled"
    assert reasons[1] == "replica 0 failed: SystemExit: 3"
    assert reasons[2] == "ended by SIGABRT"
    assert reasons[3] == "ended by SIGKILL"
    assert reasons[4] == "no end after 15 seconds (hydra.launcher.timeout)"
    for job, reason in zip(first, reasons, strict=False):
        assert reason in (tmp_path / "sweep" / job["directory"] / "xlaexp.log").read_text()
        assert reason in ended.stdout
    assert ended.stderr == f"job 0 failed: {reasons[0]} (4 more failed)\n"
    assert "Traceback" in (tmp_path / "sweep" / first[0]["directory"] / "xlaexp.log").read_text()

    (tmp_path / "broken").unlink()
    ended = ended_well(xlaexp(*command, cwd=tmp_path))
    assert "7 of 12 jobs are done already" in ended.stdout
    second = jobs(tmp_path / "sweep")
    assert [(job["state"], job["attempts"]) for job in second] == [("done", 2)] * 5 + [("done", 1)] * 7
    assert second[5:] == first[5:]
    # Nothing is lost of what the failed attempts had left.
    assert len(list((tmp_path / "sweep" / "attempts").iterdir())) == 5
    with (tmp_path / "sweep" / "results.csv").open() as file:
        table = list(csv.DictReader(file))
    assert sorted(int(row["data.job"]) for row in table) == list(range(12))


def test_a_failed_job_is_retried(tmp_path: Path) -> None:
    (tmp_path / "broken").touch()
    ended = xlaexp("-m", "data.job=0,5", *TROUBLED, "hydra.launcher.retries=2", cwd=tmp_path)
    assert ended.code == 1
    assert [(job["state"], job["attempts"]) for job in jobs(tmp_path / "sweep")] == [("failed", 3), ("done", 1)]


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 130)])
def test_a_sweep_that_is_ended_leaves_no_process_and_resumes(signum: signal.Signals, code: int, tmp_path: Path) -> None:
    command = ("-m", "seed=0,1,2", "device=multi", *FAST)
    sweep = start(*command, cwd=tmp_path)
    until(lambda: bool(list(tmp_path.glob("sweep/*/environment.json"))), 120)
    time.sleep(1)
    sweep.send_signal(signum)
    assert sweep.wait(20) == code
    until(lambda: not processes_in(tmp_path), 15)
    assert "Traceback" not in (tmp_path / "started.log").read_text()
    shown = ended_well(call(show, "sweep", cwd=tmp_path)).stdout
    assert "running" not in shown
    assert "The same command with hydra.sweep.dir=sweep runs what is left" in shown
    ended_well(xlaexp(*command, cwd=tmp_path))
    done = jobs(tmp_path / "sweep")
    assert [job["state"] for job in done] == ["done"] * 3
    assert len(list(tmp_path.glob("sweep/*/result.json"))) == 3


def begin_late() -> None:
    time.sleep(0.5)
    processes.lead_group()
    time.sleep(100)


def parent_of_one_that_begins_late() -> None:
    multiprocessing.get_context("fork").Process(target=begin_late).start()
    time.sleep(100)


def kill_a_parent_too_early() -> None:
    parent = multiprocessing.get_context("fork").Process(target=parent_of_one_that_begins_late)
    parent.start()
    until(lambda: len(processes_in(Path.cwd())) == 2, 10)
    parent.kill()
    parent.join()
    assert len(processes_in(Path.cwd())) == 1
    until(lambda: not processes_in(Path.cwd()), 10)


def test_a_process_ends_though_its_parent_was_killed_before_it_could_look(tmp_path: Path) -> None:
    here = tmp_path / "killed"
    here.mkdir()
    ended_well(call(kill_a_parent_too_early, cwd=here))


def journal() -> list[str]:
    """What jobs in the working directory have written down: "start" and the seed, "end" and the seed."""
    return Path("journal.txt").read_text().splitlines() if Path("journal.txt").exists() else []


def finished() -> dict[int, bytes]:
    """The results of jobs in the working directory, by their seeds."""
    ledger = Ledger.read(Path("sweep"))
    paths = {int(entry.overrides[0].removeprefix("seed=")): Path("sweep", entry.directory) for entry in ledger.entries}
    return {job: (path / "result.json").read_bytes() for job, path in paths.items() if (path / "result.json").exists()}


def all_gone(processes: set[int]) -> bool:
    return not processes & set(processes_in(Path.cwd()))


def has_gone_on(sweep: BaseProcess, lines: int) -> bool:
    """Whether a sweep has come to a number of lines in the journal, or has ended."""
    return len(journal()) >= lines or sweep.exitcode is not None


def kill_and_resume(seed: int) -> None:
    """Kills a sweep in the working directory at random moments, starts it again at once each time, and ends it well.

    A moment is a random time after a random number of new lines in the journal, however fast the machine is.
    """
    print(f"random seed {seed}")
    moments = random.Random(seed)
    context = multiprocessing.get_context("fork")  # this process has imported everything
    orphans: set[int] = set()
    for attempt in range(KILLS + 1):
        before, done = len(journal()), finished()
        sweep = context.Process(target=main, args=(*TINY, f"hydra.launcher.reuse={attempt % 2 == 1}"))
        sweep.start()
        until(partial(all_gone, orphans), 10)  # those of the sweep before
        if attempt < KILLS:
            lines = moments.randrange(4)
            until(partial(has_gone_on, sweep, before + lines), 60)
            time.sleep(moments.uniform(0, 0.4 if lines else 2))
            sweep.kill()
        sweep.join()
        orphans = set(processes_in(Path.cwd()))
        print(f"attempt {attempt}: exit code {sweep.exitcode}, {len(done)} done before, {len(orphans)} processes left")
        assert sweep.exitcode == -signal.SIGKILL or (sweep.exitcode == 0 and len(finished()) == JOBS)
        started = {int(line.split()[1]) for line in journal()[before:] if line.startswith("start")}
        assert not started & set(done)  # what has a result is not run again
        assert {job: finished()[job] for job in done} == done
    assert sweep.exitcode == 0
    assert not orphans


def test_a_sweep_that_is_killed_at_random_moments_ends_every_job_once(tmp_path: Path) -> None:
    here = tmp_path / "killed"  # processes of the test itself are not in it
    here.mkdir()
    ended_well(call(kill_and_resume, 1, cwd=here))
    found = jobs(here / "sweep")
    assert [(job["overrides"][0], job["state"]) for job in found] == [(f"seed={n}", "done") for n in range(JOBS)]
    assert len(list((here / "sweep").rglob("result.json"))) == JOBS
    for path in (here / "sweep").glob("attempts/*"):
        with tarfile.open(path) as archive:
            assert not [name for name in archive.getnames() if name.endswith("result.json")]
    lines = Counter((here / "journal.txt").read_text().splitlines())
    for number, job in enumerate(found):
        assert 1 <= lines[f"start {number}"] <= job["attempts"]
        assert lines[f"end {number}"] <= 1
    assert sum(job["attempts"] for job in found) > JOBS
    with owned(here / "sweep"):
        pass


def test_a_directory_where_a_sweep_runs_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sweep").mkdir()
    with owned(tmp_path / "sweep"):
        ended = xlaexp("-m", "seed=0", *FAST, cwd=tmp_path)
    assert ended.code == 2
    assert "another sweep is running" in ended.stderr
