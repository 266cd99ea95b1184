"""Whole runs through the command line: what they leave, what they say, how they fail."""

import csv
import json
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from fresh import Ended, output, xlaexp
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

FAST = ("train.epochs=2", "optimizer=sgd", "train.log_every=10")
PACKAGE = ("plugins=[user_package]", "loader.batch_size=8", "train.epochs=2")


def ended_well(ended: Ended) -> Ended:
    assert ended.code == 0, ended.stdout + ended.stderr
    return ended


def job_log(directory: Path) -> str:
    return (directory / "xlaexp.log").read_text()


def scalars(directory: Path) -> dict[str, list[tuple[int, float]]]:
    events = EventAccumulator(str(directory))
    events.Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_a_run_leaves_everything_in_its_output_directory(tmp_path: Path) -> None:
    ended = ended_well(xlaexp(*FAST, cwd=tmp_path))
    directory = output(tmp_path)
    names = {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}
    (events,) = [name for name in names if name.startswith("tb/")]
    assert names - {events} == {
        ".hydra/config.yaml",
        ".hydra/hydra.yaml",
        ".hydra/overrides.yaml",
        "checkpoints/best.pt",
        "checkpoints/last.pt",
        "checkpoints/step-00000044.pt",
        "environment.json",
        "metrics.csv",
        "result.json",
        "xlaexp.log",
    }
    assert "running on XLA:CPU" in ended.stdout
    assert f"tensorboard --logdir {directory / 'tb'}" in ended.stdout
    assert "step 20/44" in ended.stdout
    assert "step 20/44" in job_log(directory)


def test_the_numbers_agree_wherever_they_are_written(tmp_path: Path) -> None:
    ended_well(xlaexp(*FAST, cwd=tmp_path))
    directory = output(tmp_path)
    logged = scalars(directory / "tb")
    assert [step for step, _ in logged["train/loss"]] == [10, 20, 30, 40, 44]
    assert [step for step, _ in logged["val/accuracy"]] == [22, 44]
    assert {"train/lr", "train/samples_per_s", "val/loss"} <= logged.keys()
    with (directory / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    for tag in ("train/loss", "train/lr", "val/loss", "val/accuracy"):
        written = [(int(row["step"]), float(row[tag])) for row in rows if row[tag]]
        assert written == pytest.approx(np.array(logged[tag]), rel=1e-6)
    result = json.loads((directory / "result.json").read_text())
    assert result["objective"] == pytest.approx(max(value for _, value in logged["val/accuracy"]))
    assert logged["objective"] == pytest.approx(np.array([(44, result["objective"])]))
    assert (result["steps"], result["epochs"], result["replicas"]) == (44, 2, 1)


def test_checkpoints_are_on_the_cpu_and_load_without_pickled_code(tmp_path: Path) -> None:
    ended_well(xlaexp(*FAST, "optimizer=adamw", "device=multi", cwd=tmp_path))
    directory = output(tmp_path)
    for name in ("last.pt", "best.pt"):
        content = torch.load(directory / "checkpoints" / name, weights_only=True)
        tensors = [t for t in torch.utils._pytree.tree_leaves(content) if isinstance(t, torch.Tensor)]
        assert len(tensors) > 8
        assert {t.device.type for t in tensors} == {"cpu"}
    assert content["config"]["device"]["launch"] == "multi"
    from xlaexp.components.data.digits import Digits
    from xlaexp.components.models.mlp import MLP

    model = MLP(10, (1, 8, 8))
    model.load_state_dict(torch.load(directory / "checkpoints" / "last.pt", weights_only=True)["model"])
    inputs, targets = Digits().val().batch(range(359))
    accuracy = (model(inputs).argmax(1) == targets).double().mean().item()
    assert accuracy == pytest.approx(json.loads((directory / "result.json").read_text())["metrics"]["val/accuracy"])


def test_the_environment_is_recorded(tmp_path: Path) -> None:
    ended_well(xlaexp(*FAST, "device=multi", cwd=tmp_path))
    content = json.loads((output(tmp_path) / "environment.json").read_text())
    assert content["device"] == {"kind": "CPU", "count": 2}
    assert content["packages"]["torch_xla"] == "2.9.0"
    assert {"python", "git", "command", "variables"} <= content.keys()


def test_case_37_a_sweep_gives_one_event_file_a_run_with_flat_hyper_parameters(tmp_path: Path) -> None:
    ended_well(xlaexp("-m", "seed=0,1,2", "debug=fast_run", cwd=tmp_path))
    (sweep,) = tmp_path.glob("multirun/*/*")
    files = sorted(sweep.rglob("events.out.*"))
    names = [f"{number}__debug=fast_run__seed={number}" for number in range(3)]
    assert [file.parent for file in files] == [sweep / name / "tb" for name in names]
    for number, file in enumerate(files):
        events = EventAccumulator(str(file.parent))
        events.Reload()
        plugin = events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
        from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

        hparams = HParamsPluginData.FromString(plugin).session_start_info.hparams
        assert hparams["seed"].number_value == number
        assert hparams["optimizer.lr"].number_value == 0.001
        assert hparams["loader.drop_last"].string_value == "true"
        assert events.Scalars("objective")
        assert "config/text_summary" in events.Tags()["tensors"]


def test_only_replica_0_writes_events_and_says_what_it_does(tmp_path: Path) -> None:
    ended_well(xlaexp(*PACKAGE, "device=multi", "data=user_package.parts.Talkative", cwd=tmp_path))
    directory = output(tmp_path)
    assert len(list(tmp_path.rglob("events.out.*"))) == 1
    # Case 35: nothing of the other replicas but warnings, with their ordinal.
    lines = job_log(directory).splitlines()
    assert len([line for line in lines if line.endswith("information from a replica")]) == 1
    assert len([line for line in lines if "warning from a replica" in line]) == 2
    assert len([line for line in lines if "[replica 1] warning from a replica" in line]) == 1


def test_case_34_resolvers_are_resolved_before_the_launch(tmp_path: Path) -> None:
    root = "data.root=${hydra:runtime.output_dir}"
    ended_well(xlaexp(*PACKAGE, "device=multi", "data=user_package.parts.Talkative", root, cwd=tmp_path))
    assert {path.name for path in output(tmp_path).glob("seen-*")} == {"seen-0", "seen-1"}
    assert len(list(tmp_path.glob("outputs/*/*"))) == 1


def test_case_12_colab_takes_preset_worker_addresses_out_of_the_way(tmp_path: Path) -> None:
    env = {"PJRT_DEVICE": "CPU", "TPU_PROCESS_ADDRESSES": "10.0.0.1:8471", "COLAB_RELEASE_TAG": "x"}
    data = "data=user_package.parts.Talkative"
    ended_well(xlaexp(*PACKAGE, "device=colab", data, cwd=tmp_path, env=env))
    assert (tmp_path / "seen-0").read_text() == "none"
    assert "strategy sync (device=colab" in job_log(output(tmp_path))


@pytest.mark.parametrize("loader", ["plain", "mp_device_loader"])
@pytest.mark.parametrize("device", ["single", "multi"])
def test_a_replica_that_raises_ends_the_run_with_its_traceback(device: str, loader: str, tmp_path: Path) -> None:
    overrides = (f"device={device}", f"loader={loader}", "data=user_package.parts.PoisonedData")
    started = time.perf_counter()
    ended = xlaexp(*PACKAGE, *overrides, cwd=tmp_path, timeout=60)
    assert time.perf_counter() - started < 60
    assert ended.code == 1
    text = job_log(output(tmp_path))
    assert "RuntimeError: sample 5 is poisoned" in text
    assert "Traceback" in text
    assert "failed: SampleError: RuntimeError: sample 5 is poisoned (in sample 5)" in ended.stderr
    assert not (output(tmp_path) / "result.json").exists()


def test_a_replica_that_dies_ends_the_run(tmp_path: Path) -> None:
    overrides = ("device=multi", "data=user_package.parts.PoisonedData", "data.deadly=true")
    ended = xlaexp(*PACKAGE, *overrides, cwd=tmp_path, timeout=60)
    assert ended.code == 1
    assert "the launch failed: BrokenProcessPool" in ended.stderr


@pytest.mark.parametrize("preset", ["digits_cnn", "digits_replicas", "fake_resnet18"])
def test_presets_run_and_can_be_cut_short(preset: str, tmp_path: Path) -> None:
    small = (
        ("data.train_size=64", "data.val_size=16", "loader.batch_size=4", "optimizer.momentum=0")
        if preset == "fake_resnet18"
        else ()
    )
    ended_well(xlaexp(f"experiment={preset}", "debug=fast_run", *small, cwd=tmp_path))
    assert json.loads((output(tmp_path) / "result.json").read_text())["steps"] == 3


def test_one_batch_can_be_learned_by_heart(tmp_path: Path) -> None:
    ended_well(xlaexp("debug=overfit_batch", "device=multi", "loader.batch_size=16", cwd=tmp_path))
    assert json.loads((output(tmp_path) / "result.json").read_text())["objective"] == 1.0


def test_loader_workers_load(tmp_path: Path) -> None:
    workers = ("loader.num_workers=2", "device=multi", "train.epochs=1", "optimizer=sgd")
    ended_well(xlaexp(*workers, cwd=tmp_path, timeout=300))
    with_workers = torch.load(output(tmp_path) / "checkpoints" / "last.pt", weights_only=True)["model"]
    (tmp_path / "without").mkdir()
    ended_well(xlaexp(*workers, "loader.num_workers=0", cwd=tmp_path / "without"))
    without = torch.load(output(tmp_path / "without") / "checkpoints" / "last.pt", weights_only=True)["model"]
    assert all(torch.equal(with_workers[name], without[name]) for name in without)


def test_a_directory_that_holds_a_run_is_refused_and_left_alone(tmp_path: Path) -> None:
    ended_well(xlaexp(*FAST, "hydra.run.dir=here", cwd=tmp_path))
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "here").rglob("*")}
    ended = xlaexp(*FAST, "hydra.run.dir=here", cwd=tmp_path)
    assert ended.code == 2
    assert "already holds a run" in ended.stderr
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "here").rglob("*")} == before


@pytest.mark.parametrize("tracking", ["tensorboard", "csv"])
def test_tracking_is_chosen(tracking: str, tmp_path: Path) -> None:
    ended = ended_well(xlaexp("debug=fast_run", f"tracking={tracking}", cwd=tmp_path))
    directory = output(tmp_path)
    assert (directory / "tb").exists() == ("tensorboard --logdir" in ended.stdout) == (tracking == "tensorboard")
    assert (directory / "metrics.csv").exists() == (tracking == "csv")
