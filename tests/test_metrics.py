"""Metrics over replicas are those of all samples at once; an evaluation of a checkpoint gives the logged numbers."""

import csv
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
import torchmetrics.classification as tc
import torchmetrics.regression as tr
from composing import config
from fresh import Begun, main, xlaexp
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from test_config_errors import refused
from test_steps import PLAIN_SGD, counted
from test_sweep import ended_well
from torchmetrics import MaxMetric, MeanMetric, Metric
from user_package import metrics as users

from xlaexp import source
from xlaexp.components.data.digits import Digits
from xlaexp.components.models.mlp import MLP
from xlaexp.config import catalog
from xlaexp.train.merging import merged, states

RUN = ("optimizer=adamw", "train.epochs=2", "train.max_steps=12", "checkpoint.unit=step", "checkpoint.every=100")
NAMED = ("accuracy", "top_k", "torchmetrics/MulticlassF1Score", "torchmetrics/AUROC", "user_package.metrics.Classes")
ALL = (
    *(f"metrics=[{','.join(NAMED)}]", "metrics.AUROC.task=multiclass", "metrics.top_k.k=3", "plugins=[user_package]"),
    *("+metrics.python._target_=user_package.metrics.python_number", "+metrics.python.scale=2"),
    *("+metrics.numpy._target_=user_package.metrics.numpy_scalar", "+metrics.tensor.name=tensor"),
    *("+metrics.values.name=a_value_a_sample", "+metrics.summed._target_=user_package.metrics.Summed"),
)


def result(directory: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((directory / "result.json").read_text())
    return content


def at_once(checkpoint: Path) -> dict[str, float]:
    """The metrics of ``ALL`` by torch and torchmetrics alone, on all samples at once."""
    model = MLP(10, (1, 8, 8), [32])
    model.load_state_dict(torch.load(checkpoint, weights_only=True)["model"])
    samples = Digits().val()
    inputs, targets = samples.batch(list(range(len(samples))))
    with torch.no_grad():
        outputs = model(inputs)
    f1, auroc = tc.MulticlassF1Score(10), tc.MulticlassAUROC(10)
    classes = users.Classes()
    classes.update(outputs, targets)
    return {
        "loss": torch.nn.functional.cross_entropy(outputs, targets).item(),
        "accuracy": (outputs.argmax(1) == targets).double().mean().item(),
        "top_k": (outputs.topk(3).indices == targets[:, None]).any(1).double().mean().item(),
        "MulticlassF1Score": f1(outputs, targets).item(),
        "AUROC": auroc(outputs, targets).item(),
        "Classes": classes.compute(),
        "python": users.python_number(outputs, targets, 2.0),
        "numpy": users.numpy_scalar(outputs, targets),
        "tensor": outputs.max().item(),
        "values": outputs.gather(1, targets[:, None]).mean().item(),
        "summed": outputs.gather(1, targets[:, None]).mean().item(),
    }


def test_every_metric_is_that_of_all_samples_at_once(tmp_path: Path) -> None:
    command = (*RUN, *ALL, "model.hidden=[32]", "loader.batch_size=50")
    ended_well(xlaexp(*command, "hydra.run.dir=trained", cwd=tmp_path))
    evaluation = (*command, "mode=eval", "checkpoint=trained")
    loader = ("loader=mp_device_loader", "loader.batches_per_execution=3")
    ended = ended_well(xlaexp(*evaluation, *loader, "hydra.run.dir=one", cwd=tmp_path))
    assert "other options" not in ended.stdout
    assert result(tmp_path / "one")["metrics"] == result(tmp_path / "trained")["metrics"]  # to the bit
    # 359 samples: 8 batches of 50 on one replica, 3 on each of three; the last ones are not full.
    smooth = ("device=multi", "device.replicas=3", "criterion.label_smoothing=0.1")
    ended = ended_well(xlaexp(*evaluation, *smooth, "hydra.run.dir=three", cwd=tmp_path))
    assert "other options under criterion" in ended.stdout
    expected = at_once(tmp_path / "trained" / "checkpoints" / "last.pt")
    for run in ("one", "three"):
        metrics = result(tmp_path / run)["metrics"]
        assert list(metrics) == [f"val/{name}" for name in expected]
        for name, value in expected.items():
            exact = name in ("accuracy", "top_k", "Classes", "python")
            if (name, run) != ("loss", "three"):
                assert metrics[f"val/{name}"] == pytest.approx(value, rel=1e-12 if exact else 1e-5), (name, run)


@pytest.mark.parametrize(
    ("metric", "labels"),
    [
        (tc.MulticlassF1Score(3, average="macro"), True),  # sum
        (tc.MulticlassAUROC(3), True),  # cat
        (tc.MulticlassCalibrationError(3), True),
        (tr.PearsonCorrCoef(), False),  # None: stacked
        (tr.ExplainedVariance(), False),
        (tr.R2Score(), False),
        (MaxMetric(), None),
        (MeanMetric(), None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_states_are_merged_as_torchmetrics_says(metric: Metric, labels: bool | None) -> None:
    generator = torch.Generator().manual_seed(0)
    outputs, targets = torch.randn(23, 3, generator=generator), torch.randint(3, (23,), generator=generator)
    if not labels:
        outputs, targets = outputs[:, 0], outputs[:, 1]
    whole = metric.clone()
    whole.update(*((outputs, targets) if labels is not None else (outputs,)))
    replicas = [metric.clone() for _ in range(3)]
    # Uneven shares, in several batches; the last replica had padding alone.
    for replica, part in ((0, slice(0, 9)), (1, slice(9, 14)), (0, slice(14, 23))):
        replicas[replica].update(*((outputs[part], targets[part]) if labels is not None else (outputs[part],)))
    shares = [states(replica) for replica in replicas]
    with merged(replicas[0], shares):
        torch.testing.assert_close(replicas[0].compute(), whole.compute(), rtol=1e-5, atol=1e-6)
    alone = replicas[0].clone()
    with merged(replicas[0], [shares[0], shares[2]]):  # the only one of them that had samples
        torch.testing.assert_close(replicas[0].compute(), alone.compute())
    replicas[0].reset()  # lists are lists again


def test_masks_with_changing_counts_are_one_graph(tmp_path: Path) -> None:
    data = ("data=fake", "data.shape=[4]", "data.train_size=64", "data.val_size=20", "loader.batch_size=8")
    counts = counted(tmp_path, *data, *PLAIN_SGD, "metrics=[accuracy,top_k]", "metrics.top_k.k=2")["evaluate"]
    assert counts == {"compilations": 1, "executions": 3, "marks": 3, "reads": 1}
    host = ("metrics=[accuracy,torchmetrics/MulticlassF1Score]",)
    counts = counted(tmp_path, *data, *PLAIN_SGD, *host)["evaluate"]
    assert (counts["compilations"], counts["executions"], counts["marks"]) == (1, 3, 3)


def test_an_evaluation_gives_the_numbers_of_the_training(tmp_path: Path) -> None:
    # Three: the mean of three equal statistics may be rounded.
    replicas = ("device=multi", "device.replicas=3", "loader=mp_device_loader", "precision=bf16")
    command = (*RUN, *replicas, "model=cnn", "model.channels=[4,8]", "train.ema_decay=0.9")
    ended_well(xlaexp(*command, "hydra.run.dir=run", cwd=tmp_path))
    before = sorted((tmp_path / "run").rglob("*"))
    ended = ended_well(xlaexp(*command, "mode=eval", "checkpoint=run", "hydra.run.dir=eval", cwd=tmp_path))
    assert "averaged weights" in ended.stdout
    trained, evaluated = result(tmp_path / "run"), result(tmp_path / "eval")
    assert evaluated["metrics"] == trained["metrics"]  # to the bit
    assert (evaluated["steps"], evaluated["epochs"]) == (trained["steps"], trained["epochs"])
    with (tmp_path / "eval" / "metrics.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert row == {"step": "12", **{name: str(value) for name, value in trained["metrics"].items()}}
    events = EventAccumulator(str(tmp_path / "eval" / "tb"))
    events.Reload()
    logged = [(event.step, event.value) for event in events.Scalars("val/loss")]
    assert logged == [(12, pytest.approx(trained["metrics"]["val/loss"]))]
    assert not (tmp_path / "eval" / "checkpoints").exists()
    assert sorted((tmp_path / "run").rglob("*")) == before


def test_what_cannot_be_evaluated_is_refused(tmp_path: Path) -> None:
    assert "mode=eval needs one; give checkpoint=PATH" in refused("mode=eval")
    assert "use resume=here" in refused("checkpoint=here")
    both = refused("mode=eval", "checkpoint=nowhere", "resume=auto")
    assert "there is no file or directory" in both
    assert "leave resume out" in both
    assert config("mode=eval", f"checkpoint={tmp_path}").evaluated == str(tmp_path)
    ended_well(xlaexp("debug=fast_run", "hydra.run.dir=run", cwd=tmp_path))
    ended = xlaexp("mode=eval", "checkpoint=run/checkpoints/best.pt", "model.hidden=[7]", cwd=tmp_path)
    assert ended.code == 1
    assert "best.pt is the state of another model" in ended.stderr


@pytest.mark.parametrize("device", ["single", "multi"])
def test_an_evaluation_is_ended_by_the_first_signal(device: str, tmp_path: Path) -> None:
    data = ("data=user_package.faulty.Faulty", f"device={device}", "tracking=csv")
    ended_well(xlaexp("debug=fast_run", *data, "hydra.run.dir=run", cwd=tmp_path))
    run = Begun(main, "mode=eval", "checkpoint=run", *data, "data.val_fault=hang", cwd=tmp_path)
    deadline = time.monotonic() + 60
    while not (tmp_path / "hangs").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(run.pid, signal.SIGTERM)
    ended = run.end(30)
    assert (ended.code, run.left()) == (143, False), ended.stdout + ended.stderr


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        (["metrics=[accuracy,top_kk]"], "unknown metrics 'top_kk'; did you mean 'top_k'?"),
        (["metrics=torchmetrics/MulticlassF1"], "did you mean 'torchmetrics/MulticlassF1Score'?"),
        (["metrics=top_k"], "objective.metric: unknown metric 'val/accuracy'"),
        (["metrics=[accuracy,top_k]", "checkpoint.metric=val/topk"], "did you mean 'val/top_k'?"),
        (["metrics=[accuracy,torchmetrics/AUROC]"], "metrics.AUROC.task: is mandatory"),
        (["metrics.accuracy.name=accuracyy"], "did you mean 'accuracy'?"),
        (["+metrics.loss.name=accuracy"], "an evaluation yields val/loss without it"),
        (
            ["metrics=[accuracy,torchmetrics/MulticlassF1Score]", "metrics.MulticlassF1Score.average=mean"],
            "metrics.MulticlassF1Score.average: input should be 'micro'",
        ),
        (["+metrics.f.name=torchmetrics/BinaryF1Score", "+metrics.f.treshold=0.3"], "did you mean 'threshold'?"),
    ],
)
def test_wrong_metrics_are_refused(overrides: list[str], text: str) -> None:
    assert text in refused(*overrides)


def test_known_metrics_are_found_without_torch() -> None:
    code = (
        "import sys; from composing import config; "
        "config('metrics=[accuracy,torchmetrics/MulticlassF1Score]', 'objective.metric=val/MulticlassF1Score'); "
        "assert not {'torch', 'torchmetrics'} & sys.modules.keys()"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_torchmetrics_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    there = source.module_file

    def not_there(module: str) -> Path | None:
        return None if module.split(".")[0] == "torchmetrics" else there(module)

    monkeypatch.setattr(source, "module_file", not_there)
    catalog.torchmetrics_classes.cache_clear()
    try:
        for overrides in (
            ["metrics=[accuracy,torchmetrics/AUROC]"],
            ["+metrics.a.name=torchmetrics/AUROC"],
            ["+metrics.a._target_=torchmetrics.classification.MulticlassAUROC"],
        ):
            assert "pip install 'xlaexp[torchmetrics]'" in refused(*overrides)
    finally:
        catalog.torchmetrics_classes.cache_clear()


def test_a_metric_that_fails_is_named(tmp_path: Path) -> None:
    wrong = "+metrics.mine._target_=user_package.metrics.nothing"
    ended = xlaexp("debug=fast_run", "device=multi", wrong, cwd=tmp_path, timeout=60)
    assert ended.code == 1
    assert "metrics.mine: TypeError: it has to give a number, not NoneType" in ended.stderr
