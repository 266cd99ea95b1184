"""What a step is made of: accumulation, clipping, precision, averages, groups, and the numbers that they give."""

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import in_training
import pytest
import torch
from composing import config
from fresh import xlaexp
from test_config_errors import refused
from test_replicas import assert_equal, loaded, on_replicas, read
from test_runs import ended_well

SGD = ("optimizer=sgd", "scheduler=constant", "model.hidden=[16]")
PACKAGE = ("loader.batch_size=8", "tracking=csv")


@pytest.mark.parametrize("loader", ["plain", "mp_device_loader"])
@pytest.mark.parametrize("replicas", [1, 2])
def test_case_7_accumulated_batches_give_the_weights_of_a_large_one(replicas: int, loader: str, tmp_path: Path) -> None:
    ends = []
    # 160 samples over all replicas: two steps of 64, and 32 that are left over.
    for accumulate in (1, 4):
        directory = tmp_path / str(accumulate)
        directory.mkdir()
        batch = 64 // replicas // accumulate
        data = ("data=fake", "data.shape=[4]", "data.train_size=160", "data.val_size=8", "loader.drop_last=false")
        device = ["device=multi", "device.replicas=2"] if replicas == 2 else ["device=single"]
        options = (f"train.accumulate={accumulate}", f"loader.batch_size={batch}", f"loader={loader}", "train.epochs=2")
        on_replicas(in_training.steps, directory, *SGD, *data, *device, *options)
        ends += [loaded(directory / f"last-{ordinal}.pt") for ordinal in range(replicas)]
        steps = [read(directory / f"steps-{ordinal}.json") for ordinal in range(replicas)]
        assert [(len(found["rates"]), found["scheduler"]) for found in steps] == [(6, 6)] * replicas
    assert_equal(ends, tolerance=1e-6)
    assert_equal(ends[-replicas:])


def test_case_9_the_schedule_has_as_many_steps_as_the_optimizer(tmp_path: Path) -> None:
    data = ("data=fake", "data.shape=[4]", "data.train_size=64", "data.val_size=8", "loader.batch_size=8")
    linear = ("scheduler=linear", "scheduler.warmup=0", "optimizer=sgd", "optimizer.lr=0.4")
    on_replicas(in_training.steps, tmp_path, *data, *linear, "device=multi", "device.replicas=4", "train.epochs=2")
    for ordinal in range(4):
        steps = read(tmp_path / f"steps-{ordinal}.json")
        assert steps["rates"] == pytest.approx([0.4, 0.3, 0.2, 0.1])
        assert (steps["scheduler"], steps["last"]) == (4, 0.0)


def test_case_8_gradients_are_limited_after_their_reduction(tmp_path: Path) -> None:
    on_replicas(in_training.clipped, tmp_path, "device=multi")
    expected = [([0, 0.1], 0.1), ([2, 0], None), ([1, 0], 2), ([3, 4], 10), ([1.5, -1.5], None)]
    for ordinal in range(2):
        for (step, norm), (wanted, wanted_norm) in zip(
            read(tmp_path / f"clipped-{ordinal}.json"), expected, strict=True
        ):
            assert step == pytest.approx(wanted, abs=1e-5)
            assert norm == (wanted_norm if wanted_norm is None else pytest.approx(wanted_norm, rel=1e-5))


def test_case_28_bf16_computes_in_bfloat16_and_keeps_parameters_in_float32(tmp_path: Path) -> None:
    on_replicas(in_training.dtypes, tmp_path, "precision=bf16")
    f32 = "torch.float32"
    assert read(tmp_path / "dtypes.json") == {
        "outputs": "torch.bfloat16",
        "losses": f32,
        "gradients": f32,
        "parameters": f32,
    }
    assert "precision=bf16" in refused("precision=fp16")
    ended_well(xlaexp("precision=bf16", "device=multi", "train.epochs=4", "hydra.run.dir=run", cwd=tmp_path))
    assert read(tmp_path / "run" / "result.json")["objective"] > 0.85


def test_case_25_parameter_groups(tmp_path: Path) -> None:
    short = ("debug=fast_run", "tracking=csv", "optimizer=adamw")
    ended_well(xlaexp(*short, "param_groups=no_decay", "hydra.run.dir=flat", cwd=tmp_path))
    groups = checkpoint(tmp_path / "flat")["optimizer"]["param_groups"]
    assert [(group["weight_decay"], len(group["params"])) for group in groups] == [(0.01, 2), (0.0, 2)]
    two = "param_groups=[{params: 'bias$', lr: 0.5, weight_decay: 0}, {params: 'layers\\.3', lr: 0.25}]"
    ended_well(xlaexp(*short, two, "scheduler=constant", "hydra.run.dir=two", cwd=tmp_path))
    groups = checkpoint(tmp_path / "two")["optimizer"]["param_groups"]
    assert [(group["lr"], len(group["params"])) for group in groups] == [(0.001, 1), (0.5, 2), (0.25, 1)]
    assert "train/lr_1,train/lr_2" in (tmp_path / "two" / "metrics.csv").read_text()
    ended = xlaexp(*short, "param_groups=[{params: nothing}]", cwd=tmp_path)
    assert ended.code == 1
    assert "'nothing' fits no parameter" in ended.stderr


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("[{params: bias, weigth_decay: 0}]", "did you mean 'weight_decay'?"),
        ("[{lr: 1}]", "needs params, a regular expression"),
        ("[{params: '('}]", "is no regular expression"),
        ("some", "has to be all, no_decay, or a list"),
    ],
)
def test_bad_parameter_groups_are_refused(value: str, message: str) -> None:
    assert message in refused(f"param_groups={value}", "optimizer=adamw")


def test_case_26_running_statistics_are_averaged_where_they_are_saved_and_evaluated(tmp_path: Path) -> None:
    cnn = ("device=multi", "model=cnn", "model.channels=[4]")
    on_replicas(in_training.statistics, tmp_path, *cnn)
    assert read(tmp_path / "statistics.json") == {"model": 1.0, "replicas": [0.0, 2.0], "own": 0.0, "evaluated": 1.0}


def test_tied_weights_stay_tied(tmp_path: Path) -> None:
    on_replicas(in_training.tied, tmp_path, *PACKAGE, "model=user_package.parts.Tied", "device=multi", "train.epochs=1")
    assert read(tmp_path / "tied.json") == {"same": True, "owned": 1, "equal": True}


def checkpoint(directory: Path, name: str = "last.pt") -> dict[str, Any]:
    content: dict[str, Any] = torch.load(directory / "checkpoints" / name, weights_only=True)
    return content


def test_the_average_of_the_weights_is_evaluated_and_saved(tmp_path: Path) -> None:
    every = ("checkpoint.unit=step", "checkpoint.every=1", "checkpoint.keep_last=100")
    options = (*every, "train.ema_decay=0.8", "train.epochs=1", "train.max_steps=8", "optimizer.lr=0.01")
    ended_well(xlaexp(*options, "hydra.run.dir=run", cwd=tmp_path))
    states = [checkpoint(tmp_path / "run", f"step-{step:08}.pt") for step in range(1, 9)]
    average = states[0]["average"]
    for state in states[1:]:
        for name in average:
            average[name] = 0.8 * average[name] + 0.2 * state["model"][name]
            torch.testing.assert_close(average[name], state["average"][name], rtol=0, atol=1e-6)
    from xlaexp.components.data.digits import Digits
    from xlaexp.components.models.mlp import MLP

    inputs, targets = Digits().val().batch(range(359))
    accuracies = []
    for weights in ("average", "model"):
        model = MLP(10, (1, 8, 8))
        model.load_state_dict(states[-1][weights])
        accuracies.append((model(inputs).argmax(1) == targets).double().mean().item())
    assert accuracies[0] != accuracies[1]
    assert read(tmp_path / "run" / "result.json")["metrics"]["val/accuracy"] == pytest.approx(accuracies[0])


def test_the_seed_alone_determines_samples_and_weights(tmp_path: Path) -> None:
    options = (
        *PACKAGE,
        "data=user_package.parts.Noisy",
        "model.dropout=0.3",
        "model.hidden=[8]",
        "train.epochs=2",
        "optimizer=sgd",
    )
    runs = {
        "plain": ["loader=plain"],
        "ahead": ["loader=mp_device_loader"],
        "workers": ["loader=plain", "loader.num_workers=2"],
        "evaluated": ["loader=plain", "train.eval_every=2"],
    }
    states = []
    for name, choice in runs.items():
        ended_well(xlaexp(*choice, *options, f"hydra.run.dir={name}", cwd=tmp_path))
        states.append(checkpoint(tmp_path / name)["model"])
    assert_equal(states)
    ended_well(xlaexp("loader=plain", *options, "seed=1", "hydra.run.dir=other", cwd=tmp_path))
    assert not torch.equal(checkpoint(tmp_path / "other")["model"]["layers.1.weight"], states[0]["layers.1.weight"])


@pytest.mark.parametrize("device", ["single", "multi"])
def test_the_best_checkpoint_by_a_number_of_the_training(device: str, tmp_path: Path) -> None:
    by_loss = ("checkpoint.metric=train/loss", "checkpoint.mode=max", "checkpoint.unit=step", "checkpoint.every=2")
    options = (*by_loss, "train.log_every=1", "train.epochs=1", "train.max_steps=8", "tracking=csv", f"device={device}")
    ended_well(xlaexp(*options, "hydra.run.dir=run", cwd=tmp_path))
    with (tmp_path / "run" / "metrics.csv").open() as file:
        losses = {int(row["step"]): float(row["train/loss"]) for row in csv.DictReader(file) if row["train/loss"]}
    saved = {step: losses[step] for step in (2, 4, 6, 8)}
    best = checkpoint(tmp_path / "run", "best.pt")
    assert best["step"] == max(saved, key=saved.__getitem__)
    assert best["best_value"] == pytest.approx(max(saved.values()))


@pytest.mark.parametrize("device", ["single", "multi"])
def test_early_stopping_ends_all_replicas_and_stays_ended(device: str, tmp_path: Path) -> None:
    stop = ("callbacks=early_stopping", "callbacks.early_stopping.patience=2", "callbacks.early_stopping.min_delta=10")
    options = (f"device={device}", *stop, "tracking=csv", "train.epochs=9", "hydra.run.dir=run")
    ended = ended_well(xlaexp(*options, cwd=tmp_path))
    assert "stops early: val/loss has not improved in 2 evaluations" in ended.stdout
    assert read(tmp_path / "run" / "result.json")["epochs"] == 3
    shutil.copytree(tmp_path / "run", tmp_path / "before")
    ended_well(xlaexp(*options, "resume=auto", cwd=tmp_path))
    assert read(tmp_path / "run" / "result.json")["epochs"] == 3
    assert (tmp_path / "run" / "metrics.csv").read_text() == (tmp_path / "before" / "metrics.csv").read_text()


def test_callbacks_are_checked_and_a_users_own_is_called(tmp_path: Path) -> None:
    assert "did you mean 'patience'?" in refused("callbacks=early_stopping", "+callbacks.early_stopping.patienc=2")
    config("callbacks=early_stopping")
    own = ("+callbacks.mine={_target_: user_package.watcher.Watcher}", "debug=fast_run", "hydra.run.dir=run")
    ended_well(xlaexp(*own, cwd=tmp_path))
    seen = json.loads((tmp_path / "run" / "seen.json").read_text())
    assert seen == ["start", "log 1", "log 2", "log 3", "evaluate 3", "checkpoint 3", "end"]


@pytest.mark.parametrize("device", ["single", "multi"])
def test_rematerialisation_changes_no_number(device: str, tmp_path: Path) -> None:
    data = ("data=fake", "data.shape=[3,8,8]", "data.train_size=32", "data.val_size=8", "loader.batch_size=4")
    ends = []
    for remat in (False, True):
        options = (f"train.remat={remat}", "train.max_steps=3", f"hydra.run.dir={remat}", "optimizer=sgd")
        model = ("model=user_package.parts.Residual", "tracking=csv", "scheduler=constant")
        ended_well(xlaexp(*options, *model, *data, f"device={device}", cwd=tmp_path))
        ends.append(checkpoint(tmp_path / str(remat)))
    assert ends[0]["model"]["blocks.1.norm.num_batches_tracked"] == 3
    assert_equal([end["model"] for end in ends], tolerance=1e-6)
    ended = xlaexp("train.remat=true", "debug=fast_run", cwd=tmp_path)
    assert ended.code == 1
    assert "model 'mlp' has no blocks" in ended.stderr
