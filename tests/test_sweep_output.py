"""What people look at after a sweep: tables, the plot, and TensorBoard over all jobs."""

import csv
import io
import json
import logging
import math
import re
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fresh import xlaexp
from matplotlib import image
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console

from xlaexp.sweep import plot, results
from xlaexp.sweep.ledger import Entry, Ledger

SWEEP = ("-m", "optimizer.lr=0.001,0.01", "train.epochs=1", "tracking=both", "hydra.sweep.dir=sweep")


def entry(number: int, overrides: Sequence[str], objective: float | None = None, state: Any = None) -> Entry:
    state = state or ("failed" if objective is None else "done")
    return Entry(number, list(overrides), str(number), state, 1, objective, started=1.0, ended=3.0)


def drawn(*entries: Entry, mode: str = "max", metric: str = "val/accuracy") -> Figure:
    best = results.ranked(entries, mode)[0]
    figure = plot.figure(entries, results.swept(entries), best, "a sweep", metric)
    assert figure is not None
    return figure


def points(axes: Axes, label: str) -> list[tuple[float, float]]:
    (found,) = [collection for collection in axes.collections if collection.get_label() == label]
    return [(float(x), float(y)) for x, y in np.asarray(found.get_offsets())]


def tick_labels(axes: Axes) -> list[str]:
    return [label.get_text() for label in axes.get_xticklabels()]


def test_a_panel_for_each_parameter_with_an_axis_of_its_kind() -> None:
    values = [("0.0001", "mlp", 16), ("0.01", "cnn", 32), ("0.001", "cnn", 64)]
    entries = [
        entry(i, [f"optimizer.lr={lr}", f"model={model}", f"loader.batch_size={batch}", "seed=0"], 0.5 + i / 10)
        for i, (lr, model, batch) in enumerate(values)
    ]
    lr, model, batch = drawn(*entries).axes
    assert [axes.get_xlabel() for axes in (lr, model, batch)] == ["optimizer.lr", "model", "loader.batch_size"]
    assert lr.get_ylabel() == "val/accuracy"
    assert [axes.get_xscale() for axes in (lr, model, batch)] == ["log", "linear", "linear"]
    assert points(lr, "done") == [(0.0001, 0.5), (0.01, 0.6), (0.001, 0.7)]
    assert points(lr, "best") == [(0.001, 0.7)]
    assert tick_labels(model) == ["mlp", "cnn"]
    # Two jobs of one category stand beside each other.
    assert points(model, "done") == [(0.0, 0.5), (0.75, 0.6), (1.25, 0.7)]
    assert tick_labels(batch) == ["16", "32", "64"]
    assert lr.get_shared_y_axes().joined(lr, batch)
    assert points(drawn(*entries, mode="min").axes[0], "best") == [(0.0001, 0.5)]


@pytest.mark.parametrize(
    ("values", "scale", "labels"),
    [
        (["0.001", "0.003", "0.01"], "log", ["0.001", "0.003", "0.01"]),
        ([str(seed) for seed in range(1, 11)], "linear", [str(seed) for seed in range(1, 11)]),
        (["0", "0.5", "100"], "linear", None),
        (["8", "128"], "linear", ["8", "128"]),
        (["1e-5", "1.1e-5", "0.1"], "log", None),
    ],
)
def test_numbers_have_the_scale_that_keeps_them_apart(values: list[str], scale: str, labels: list[str] | None) -> None:
    (axes,) = drawn(*(entry(n, [f"x={value}"], 0.5) for n, value in enumerate(values))).axes
    assert axes.get_xscale() == scale
    assert labels is None or tick_labels(axes) == labels
    assert axes.get_xlim()[0] < min(map(float, values)) < max(map(float, values)) < axes.get_xlim()[1]


def test_jobs_without_a_value_are_crosses_at_the_bottom() -> None:
    (axes,) = drawn(
        entry(0, ["lr=1"], 0.25),
        entry(1, ["lr=2"]),
        entry(2, ["lr=3"], math.nan),
        entry(3, ["lr=4"], 0.75, state="pruned"),
        entry(4, ["lr=5"], state="queued"),
        entry(5, ["lr=6"], -math.inf),
    ).axes
    assert points(axes, "done") == points(axes, "best") == [(1.0, 0.25)]
    assert points(axes, "pruned") == [(4.0, 0.75)]
    assert [x for x, _ in points(axes, "failed")] == [2.0]
    assert [x for x, _ in points(axes, "not finite")] == [3.0, 6.0]
    # Their height is a fraction of the axis, so that it does not stretch it.
    assert 0 < points(axes, "failed")[0][1] < 0.1
    assert axes.get_ylim()[0] > 0.1
    assert axes.get_xlim()[0] < 1 < 6 < axes.get_xlim()[1]


def test_values_that_are_no_plain_words() -> None:
    entries = [
        entry(0, ["x='a,b'", "+hidden=[1,2]", "model@net=a/b", "p=1"], 0.1),
        entry(1, ["x=$a$", "+hidden=[3]", "model@net=nan"], 0.2),
    ]
    figure = drawn(*entries)
    x, hidden, net, p = figure.axes
    assert [axes.get_xlabel() for axes in (x, hidden, net, p)] == ["x", "hidden", "model@net", "p"]
    assert tick_labels(x) == ["a,b", r"\$a\$"]
    assert tick_labels(hidden) == ["[1,2]", "[3]"]
    assert tick_labels(net) == ["a/b", "nan"]
    assert tick_labels(p) == ["1", "(not set)"]
    plot.write(Path(), figure)  # a formula would be refused here
    assert image.imread(plot.FILE).std() > 0


def test_a_sweep_over_seeds_alone_is_drawn_over_the_jobs_numbers() -> None:
    (axes,) = drawn(entry(0, ["seed=0"], 0.5), entry(1, ["seed=0"], 0.5), metric="objective").axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("job", "objective")
    assert points(axes, "done") == [(0.0, 0.5), (1.0, 0.5)]


def test_a_large_sweep_is_drawn_quickly_and_stays_readable() -> None:
    names = [f"torchvision/a_model_with_a_long_name_{i}" for i in range(150)]
    entries = [entry(i, [f"model={names[i % 150]}", f"seed={i}"], i / 600) for i in range(600)]
    started = time.perf_counter()
    figure = drawn(*entries)
    plot.write(Path(), figure)
    assert time.perf_counter() - started < 20
    labels = tick_labels(figure.axes[0])
    assert len(labels) <= 60
    assert max(map(len, labels)) <= 24
    assert len(set(labels)) == len(labels)
    height, width, _ = image.imread(plot.FILE).shape
    assert max(height, width) < 3000


def test_a_sweep_without_results_has_no_plot_and_one_that_cannot_be_drawn_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    results.write(Ledger(tmp_path, [entry(0, ["a=1"]), entry(1, ["a=2"], state="queued")]), "max")
    results.write(Ledger(tmp_path, []), "max")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["results.csv", "results.md"]
    assert caplog.records == []
    (tmp_path / plot.FILE).mkdir()  # so that the picture cannot be put there
    with caplog.at_level(logging.WARNING):
        results.write(Ledger(tmp_path, [entry(0, ["a=1"], 1.0)]), "max")
    assert "results.png could not be drawn: IsADirectoryError" in caplog.text
    assert "done" in (tmp_path / "results.csv").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["results.csv", "results.md", "results.png"]


def test_tables_have_a_column_for_what_differs_with_the_values_that_were_meant(tmp_path: Path) -> None:
    entries = [
        entry(0, ["+tags='a,\"b\"'", "model@net=mlp", "lr=0.1", "~data.extra"], 0.1 + 0.2),
        entry(1, ["+tags='it\\'s'", "model@net=cnn", "lr=0.1"], 0.5),
        entry(2, ["+tags=[x|y,/z]", "model@net=cnn", "lr=0.1"], 0.9, state="pruned"),
        entry(3, ["+tags=''", "model@net=cnn", "lr=0.1"], math.nan),
        entry(4, ["+tags=b", "model@net=cnn", "lr=0.1"]),
        entry(5, ["+tags=c", "model@net=cnn", "lr=0.1"], math.inf),
    ]
    results.write(Ledger(tmp_path, entries), "max")
    with (tmp_path / "results.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert list(table[0])[:5] == ["job", "tags", "model@net", "data.extra", "state"]
    by_job = {int(row["job"]): row for row in table}
    assert [by_job[job]["tags"] for job in range(6)] == ['a,"b"', "it's", "[x|y,/z]", "", "b", "c"]
    assert by_job[0]["data.extra"] == "(removed)"
    assert float(by_job[0]["objective"]) == 0.1 + 0.2  # the very same float
    # What is no finite number after what is, pruned jobs after done ones, those without a value last.
    assert [int(row["job"]) for row in table] == [1, 0, 5, 3, 2, 4]
    assert [row[0] for row in results.rows(Ledger(tmp_path, entries), "min")[1]] == ["0", "1", "5", "3", "2", "4"]
    lines = (tmp_path / "results.md").read_text().splitlines()
    assert len(lines) == 2 + len(entries)
    assert r"| 2 | [x\|y,/z] | cnn |" in lines[6]
    assert "| 0.3 |" in lines[3]


def test_a_table_on_the_terminal_shows_values_as_they_are_and_only_failures_in_red(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = io.StringIO()
    terminal = Console(file=screen, force_terminal=True, width=150, highlight=False)
    monkeypatch.setattr("xlaexp.sweep.results.console", terminal)
    entries = [entry(0, ["x=[a,b]"], 0.5), entry(1, ["x=[/c]"]), entry(2, ["x=d"], 0.4, state="pruned")]
    results.show(Ledger(tmp_path, entries), "max")
    lines = screen.getvalue().splitlines()
    assert any("[a,b]" in line for line in lines)
    (red,) = [line for line in lines if "\x1b[31m" in line]
    assert "[/c]" in red
    assert lines[-2] == "3 jobs: 1 done, 1 failed, 1 pruned"
    assert lines[-1] == f"The same command with hydra.sweep.dir={tmp_path} runs what is left: 1 of them."


def test_several_objectives_have_a_column_each(tmp_path: Path) -> None:
    entries = [entry(0, ["a=1"], 0.5), entry(1, ["a=2"], 0.75), entry(2, ["a=3"])]
    for number, loss in enumerate((0.1, 0.2)):
        entries[number].objectives = {"val/accuracy": entries[number].objective or 0.0, "val/loss": loss}
    columns, table = results.rows(Ledger(tmp_path, entries), "max")
    assert columns[:5] == ["job", "a", "state", "objective", "val/loss"]
    assert [row[3:5] for row in table] == [["0.75", "0.2"], ["0.5", "0.1"], ["", ""]]


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a sweep of two jobs."""
    directory = tmp_path_factory.mktemp("launch")
    ended = xlaexp(*SWEEP, cwd=directory)
    assert ended.code == 0, ended.stdout + ended.stderr
    assert f"tensorboard --logdir {directory / 'sweep'}\n" in ended.stdout
    assert "reason" not in ended.stdout  # nothing has failed
    return directory / "sweep"


def test_a_sweep_ends_with_tables_and_a_plot(sweep: Path) -> None:
    with (sweep / "results.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert {row["optimizer.lr"] for row in table} == {"0.001", "0.01"}
    assert float(table[0]["objective"]) >= float(table[1]["objective"])
    for row in table:
        assert (
            float(row["objective"]) == json.loads((sweep / row["directory"] / "result.json").read_text())["objective"]
        )
    assert (sweep / "results.md").read_text().count("\n") == 4
    assert (sweep / plot.FILE).read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert image.imread(sweep / plot.FILE).std() > 0


@contextmanager
def tensorboard(directory: Path) -> Iterator[str]:
    """A TensorBoard server over a directory; its address."""
    log = Path("tensorboard.log")
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(directory), "--host", "127.0.0.1"]
    with log.open("wb") as out:
        # Its data server is a process of its own in fast mode, and would have to be ended, too.
        server = subprocess.Popen([*command, "--port", "0", "--load_fast", "false"], stdout=out, stderr=out)
    try:
        deadline = time.monotonic() + 60
        while not (found := re.search(r"http://127\.0\.0\.1:\d+", log.read_text())):
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        yield found.group()
    finally:
        server.kill()
        server.wait()


def ask(address: str, body: Any = None, **query: str) -> Any:
    request = urllib.request.Request(
        f"{address}?{urllib.parse.urlencode(query)}" if query else address,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.loads(response.read())


def test_tensorboard_over_a_sweep_shows_a_run_a_job_and_one_table_of_hyper_parameters(sweep: Path) -> None:
    jobs = json.loads((sweep / "sweep.json").read_text())["jobs"]
    runs = {f"{job['directory']}/tb": job for job in jobs}
    assert list(runs) == [
        f"{n}__optimizer.lr={lr}__tracking=both__train.epochs=1/tb" for n, lr in ((0, 0.001), (1, 0.01))
    ]
    with tensorboard(sweep) as address:
        scalars = f"{address}/data/plugin/scalars"
        deadline = time.monotonic() + 60
        while not all("objective" in ask(f"{scalars}/tags").get(run, {}) for run in runs):
            assert time.monotonic() < deadline, ask(f"{scalars}/tags")
            time.sleep(0.2)
        # No sub-run, for hyper-parameters or anything else.
        assert set(ask(f"{scalars}/tags")) == set(ask(f"{address}/data/runs")) == set(runs)
        for run, job in runs.items():
            with (sweep / job["directory"] / "metrics.csv").open(newline="") as file:
                written = list(csv.DictReader(file))
            for tag in ("train/loss", "train/lr", "val/loss", "val/accuracy"):
                expected = [(int(row["step"]), float(row[tag])) for row in written if row[tag]]
                served = [(step, value) for _, step, value in ask(f"{scalars}/scalars", run=run, tag=tag)]
                assert len(served) == len(expected) > 0
                assert served == pytest.approx(np.array(expected), rel=1e-6)
        hparams = f"{address}/data/plugin/hparams"
        experiment = ask(f"{hparams}/experiment", {"experimentName": ""})
        statuses = ["STATUS_UNKNOWN", "STATUS_SUCCESS", "STATUS_FAILURE", "STATUS_RUNNING"]
        asked = {"experimentName": "", "allowedStatuses": statuses, "colParams": [], "startIndex": 0, "sliceSize": 100}
        groups = ask(f"{hparams}/session_groups", asked)["sessionGroups"]
    # What differs comes first, because the tab shows no more than five of them until it is asked to.
    names = [info["name"] for info in experiment["hparamInfos"]]
    assert names[0] == "optimizer.lr"
    assert "model.hidden" in names
    assert {info["name"]["tag"] for info in experiment["metricInfos"]} >= {"objective", "val/accuracy"}
    assert {group["name"] for group in groups} == set(runs)
    for group in groups:
        job = runs[group["name"]]
        assert f"optimizer.lr={group['hparams']['optimizer.lr']:g}" in job["overrides"]
        assert group["hparams"]["model.name"] == "mlp"
        values = {metric["name"]["tag"]: metric["value"] for metric in group["metricValues"]}
        assert values["objective"] == pytest.approx(job["objective"], rel=1e-6)
        assert [session["status"] for session in group["sessions"]] == ["STATUS_SUCCESS"]
