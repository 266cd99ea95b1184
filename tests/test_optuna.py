"""Searches with Optuna: the space, pruning, several objectives, and a study that is resumed."""

import csv
import sys
import time
from pathlib import Path
from typing import Any

import optuna
import pytest
from fresh import Ended, call, main, xlaexp
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState
from test_sweep import TROUBLED, ended_well, jobs, start

from xlaexp.config.errors import ConfigError
from xlaexp.sweep.space import Space, parse

SEARCH = ("-m", "hydra/sweeper=optuna", "hydra.sweep.dir=sweep", "tracking=csv", "hydra.launcher.reuse=true")
TWO = ("objective.metric=[val/accuracy,val/loss]", "objective.mode=[max,min]")
SHORT = ("optimizer=sgd", "train.epochs=1")


def space(*overrides: str) -> Space:
    return parse(OverridesParser.create().parse_overrides(list(overrides)))


def study(directory: Path) -> optuna.Study:
    return optuna.load_study(study_name="xlaexp", storage=f"sqlite:///{directory}/sweep/optuna.db")


def states(directory: Path) -> list[TrialState]:
    return [trial.state for trial in study(directory).trials]


@pytest.mark.parametrize(
    ("override", "distribution"),
    [
        ("lr=interval(0.1,1)", FloatDistribution(0.1, 1)),
        ("lr=tag(log,interval(1e-4,1e-1))", FloatDistribution(1e-4, 1e-1, log=True)),
        ("width=int(interval(1,9))", IntDistribution(1, 9)),
        ("width=tag(log,int(interval(1,9)))", IntDistribution(1, 9, log=True)),
        ("width=range(8,33,8)", IntDistribution(8, 32, step=8)),
        ("rate=range(0.5,2,0.5)", CategoricalDistribution((0.5, 1.0, 1.5))),
        ("width=8,16", CategoricalDistribution((8, 16))),
        ("model=choice(mlp,cnn)", CategoricalDistribution(("mlp", "cnn"))),
        ("model.hidden=[8],[16,8]", CategoricalDistribution(("[8]", "[16,8]"))),
        ("name='a,b',null,true", CategoricalDistribution(("'a,b'", None, True))),
    ],
)
def test_hydras_syntax_is_a_search_space(override: str, distribution: BaseDistribution) -> None:
    found = space(override, "seed=3")
    (parameter,) = found.parameters
    assert parameter.distribution == distribution
    assert found.fixed == ("seed=3",)


def test_a_trial_sets_what_was_drawn_in_the_words_of_the_user() -> None:
    found = space("model.hidden=[8],[16,8]", "lr=interval(0.5,1)", "seed=3", "+x='a,b',null", "model.hidden=[4],[4, 2]")
    values: dict[str, Any] = {"model.hidden": "[4,2]", "lr": 0.75, "+x": None}
    assert found.overrides(values) == ["seed=3", "lr=0.75", "+x=null", "model.hidden=[4,2]"]
    assert list(space("a=1,2", "b=interval(0,1)").examples()) == [
        ["a=1", "b=0.0"],
        ["a=2", "b=0.0"],
        ["a=1", "b=0.618"],
        ["a=1", "b=1.0"],
    ]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("lr=tag(log,interval(0,1))", "has to be above 0"),
        ("lr=tag(log,choice(1,2))", "tag log is for intervals"),
        ("lr=tag(lgo,interval(1,2))", "unknown tag lgo"),
    ],
)
def test_what_cannot_be_searched_is_refused(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        space(override)


def test_a_grid_takes_no_real_interval() -> None:
    assert space("a=range(1,4)", "b=x,y").grid() == {"a": [1, 2, 3], "b": ["x", "y"]}
    with pytest.raises(ConfigError, match="no interval of real numbers"):
        space("a=interval(1,4)").grid()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["optimizer.lr=0.1"], "nothing to search"),
        (["train.epochs=interval(1,4)"], "train.epochs='int(interval(1,4))'"),
        (
            ["model.hidden=[8],[x]"],
            "a trial such as tracking=csv model.hidden=[x]: model.hidden.0: input should be a valid integer",
        ),
        (["seed=1,2", "hydra.sweeper.n_trials=0"], "n_trials and n_jobs have to be 1 or more"),
        (["seed=1,2", "objective.metric=[val/loss,val/accuracy]"], "1 modes for 2 metrics"),
        (
            [*TWO, "seed=1,2", "hydra/sweeper/pruner=median"],
            "a study with several objectives cannot prune",
        ),
        (["seed=1,2", "hydra.sweeper.sampler.seed=x"], "hydra.sweeper.sampler: TypeError"),
        (["optimizer.lr=interval(0.1,1)", "hydra/sweeper/sampler=grid"], "sampler=grid takes no interval"),
    ],
)
def test_a_bad_search_starts_nothing(overrides: list[str], message: str, tmp_path: Path) -> None:
    ended = xlaexp(*SEARCH, *overrides, cwd=tmp_path)
    assert ended.code == 2, ended.stderr
    assert message in ended.stderr
    assert not (tmp_path / "sweep").exists()


def without_optuna(*overrides: str) -> None:
    sys.modules["optuna"] = None  # type: ignore[assignment]  # what an import of a missing module finds
    main(*overrides)


def test_without_the_extra_the_message_names_it(tmp_path: Path) -> None:
    ended = call(without_optuna, *SEARCH, "seed=1,2", cwd=tmp_path)
    assert ended.code == 2
    assert "pip install 'xlaexp[optuna]'" in ended.stderr


def test_pruning_ends_trials_on_one_and_on_two_replicas(tmp_path: Path) -> None:
    threshold = ("hydra/sweeper/pruner=threshold", "hydra.sweeper.pruner.lower=0.3")
    command = (
        *(*SEARCH, "device=single,multi", "optimizer.lr=0.003,1e-9", "train.epochs=2"),
        *("hydra/sweeper/sampler=grid", *threshold, "hydra.launcher.n_jobs=2"),
    )
    ended = ended_well(xlaexp(*command, cwd=tmp_path))
    assert "4 jobs: 2 done, 2 pruned" in ended.stdout
    assert sorted(states(tmp_path)) == [TrialState.COMPLETE] * 2 + [TrialState.PRUNED] * 2
    for trial, job in zip(study(tmp_path).trials, jobs(tmp_path / "sweep"), strict=True):
        pruned = trial.params["optimizer.lr"] == 1e-9
        assert f"device={trial.params['device']}" in job["overrides"]
        assert job["state"] == ("pruned" if pruned else "done")
        result = OmegaConf.load(tmp_path / "sweep" / job["directory"] / "result.json")
        assert (result.epochs, result.pruned) == ((1, True) if pruned else (2, False))
        assert list(trial.intermediate_values) == ([1] if pruned else [1, 2])
        assert trial.value == job["objective"]
        assert max(trial.intermediate_values.values()) == job["objective"] == result.objective
        said = (tmp_path / "sweep" / job["directory"] / "xlaexp.log").read_text()
        assert ("pruned after evaluation 1: val/accuracy" in said) == pruned
    with (tmp_path / "sweep" / "results.csv").open() as file:
        assert [row["state"] for row in csv.DictReader(file)] == ["done", "done", "pruned", "pruned"]
    best = OmegaConf.load(tmp_path / "sweep" / "optimization_results.yaml")
    assert best.best_params["optimizer.lr"] == 0.003
    before = jobs(tmp_path / "sweep")
    for other, message in (
        ("optimizer.lr=0.1,0.2", "optimizer.lr: there is a study of other choices of it already"),
        ("objective.mode=min", "objective.mode: there is a study of other objectives already"),
        ("hydra.sweeper.storage=nowhere", "hydra.sweeper.storage=nowhere: "),
    ):
        refused = xlaexp(*command, other, cwd=tmp_path)
        assert refused.code == 2
        assert message in refused.stderr
    assert "4 of 4 trials are done already" in ended_well(xlaexp(*command, cwd=tmp_path)).stdout
    assert jobs(tmp_path / "sweep") == before


def test_several_objectives_give_a_front(tmp_path: Path) -> None:
    trials = ("optimizer.lr=tag(log,interval(1e-3,1e-1))", "hydra/sweeper/sampler=nsgaii", "hydra.sweeper.n_trials=3")
    ended_well(xlaexp(*SEARCH, *SHORT, *TWO, *trials, cwd=tmp_path))
    found = study(tmp_path)
    assert [direction.name for direction in found.directions] == ["MAXIMIZE", "MINIMIZE"]
    for trial, job in zip(found.trials, jobs(tmp_path / "sweep"), strict=True):
        assert trial.values == list(job["objectives"].values())
        assert list(job["objectives"]) == ["val/accuracy", "val/loss"]
    solutions = OmegaConf.load(tmp_path / "sweep" / "optimization_results.yaml").solutions
    assert [list(solution["values"]) for solution in solutions] == [trial.values for trial in found.best_trials]
    with (tmp_path / "sweep" / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["val/loss"]) for row in rows] == [
        value for _, value in sorted((tuple(trial.values) for trial in found.trials), reverse=True)
    ]


def test_a_trial_that_fails_is_asked_for_again(tmp_path: Path) -> None:
    (tmp_path / "broken").touch()
    command = (*SEARCH, *TROUBLED[:-1], "data.job=0,5", "hydra/sweeper/sampler=grid")
    ended = xlaexp(*command, cwd=tmp_path)
    assert ended.code == 1
    assert "RuntimeError: this job is troubled" in ended.stdout
    assert sorted(states(tmp_path)) == [TrialState.COMPLETE, TrialState.FAIL]
    (tmp_path / "broken").unlink()
    ended = ended_well(xlaexp(*command, cwd=tmp_path))
    assert "1 of 2 trials are done already" in ended.stdout
    assert sorted(states(tmp_path)) == [TrialState.COMPLETE] * 2 + [TrialState.FAIL]
    assert sorted((job["state"], job["attempts"]) for job in jobs(tmp_path / "sweep")) == [("done", 1), ("done", 2)]


def test_a_search_that_is_killed_goes_on(tmp_path: Path) -> None:
    command = (*SEARCH, *SHORT, "optimizer.lr=tag(log,interval(1e-3,1e-1))", "hydra.sweeper.n_trials=4")
    sweep = start(*command, cwd=tmp_path)
    deadline = time.monotonic() + 120
    while len(list(tmp_path.glob("sweep/*/environment.json"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    sweep.kill()
    sweep.wait()
    killed = study(tmp_path).trials
    assert [trial.state for trial in killed[:1]] == [TrialState.COMPLETE]
    ended: Ended = ended_well(xlaexp(*command, cwd=tmp_path))
    assert "1 of 4 trials are done already" in ended.stdout
    found = study(tmp_path).trials
    assert [trial.state for trial in found].count(TrialState.COMPLETE) == 4
    assert len({trial.params["optimizer.lr"] for trial in found}) == 4
    # What ran when it was killed was asked for again, and nothing twice.
    assert {trial.params["optimizer.lr"] for trial in killed} <= {trial.params["optimizer.lr"] for trial in found}
    done = jobs(tmp_path / "sweep")
    assert [job["state"] for job in done] == ["done"] * 4
    assert len(list(tmp_path.glob("sweep/*/result.json"))) == 4
