"""Bad configs: refused in the parent, all at once, each with the override that cures it."""

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from composing import CPU, config

from xlaexp.config.errors import ConfigError
from xlaexp.host import Host

TPU = replace(CPU, tpu_chips=4, libtpu=True)
COLAB = replace(CPU, colab=True)


def refused(*overrides: str, host: Host = CPU) -> str:
    with pytest.raises(ConfigError) as caught:
        config(*overrides, host=host)
    return str(caught.value)


@pytest.mark.parametrize(
    ("overrides", "texts"),
    [
        (["model=resnt18"], ["model=resnt18", "did you mean 'resnet18'?"]),
        (["train.epoch=3"], ["train.epoch=3", "did you mean 'train.epochs'?"]),
        (["+train.epoch=3"], ["train.epoch", "did you mean 'epochs'?"]),
        (["+modle=3"], ["modle", "did you mean 'model'?"]),
        (["train.epochs=???"], ["train.epochs", "mandatory", "train.epochs=..."]),
        (["train.epochs=0"], ["train.epochs", "greater than or equal to 1"]),
        (["train.epochs=many"], ["train.epochs", "valid integer", "'many'"]),
        (["~train.epochs"], ["train.epochs: is missing"]),
        (["~model"], ["model: is missing", "model=<choice>"]),
        (["seed=-1"], ["seed", "greater than or equal to 0"]),
        (["model.name=mpl"], ["model.name", "did you mean 'mlp'?"]),
        (["scheduler.warmup_unit=epochs"], ["scheduler.warmup_unit", "'step' or 'epoch'", "got 'epochs'"]),
        (["scheduler.warmup=-1"], ["scheduler.warmup", "greater than or equal to 0"]),
        (["scheduler=step", "scheduler.every=0"], ["scheduler.every", "greater than or equal to 1"]),
        (["checkpoint.metric=train/loss"], ["checkpoint.mode", "max, or min"]),
        (["checkpoint.metric=train/grad_norm"], ["checkpoint.metric", "train.clip_norm=..."]),
        (["loader.pad_to=[]"], ["loader.pad_to", "at least 1 item"]),
        (["loader.pad_to=8", "device=multi"], ["loader.pad_to", "loader.pad_to=[8]", "device=single"]),
        (["+model.hiden=[3]"], ["model.hiden", "did you mean 'hidden'?"]),
        (["model.hidden=3"], ["model.hidden", "model.hidden=..."]),
        (["optimizer.lr=high"], ["optimizer.lr", "valid number"]),
        (["optimizer=RMSprop", "+optimizer.alfa=1"], ["optimizer.alfa", "did you mean 'alpha'?"]),
        (["optimizer=adamv"], ["did you mean 'adam"]),
        (["model=torchvision/resnet19"], ["did you mean 'torchvision/resnet1"]),
        (["+model._target_=a.B"], ["model", "model.name", "_target_"]),
        (["model._target_=a.B"], ["model=my_package.module.Name"]),
        (["model=nowhere.Net"], ["model=nowhere.Net"]),
        (["plugins=[nowhere]"], ["plugins", "'nowhere'"]),
        (["strategy=fast"], ["unknown strategy 'fast'", "auto, barrier, loader, sync"]),
        (["objective.metric=val/acc"], ["did you mean 'val/accuracy'?"]),
        (["objective.mode=most"], ["objective.mode", "'max' or 'min'"]),
        (["data.val_fraction=2"], ["data.val_fraction=2.0 is not between 0 and 1"]),
        (["device.replicas=2"], ["device.replicas", "device=multi"]),
        (["device=multi", "device.replicas=0"], ["device.replicas", "greater than or equal to 1"]),
        (["model=torchvision/resnet18"], ["3 channels", "data.channels=3"]),
        (["train.epochs"], ["train.epochs", "key=value"]),
        (["hydra.launcher.foo=1"], ["hydra.launcher.foo"]),
    ],
)
def test_an_error_names_what_is_wrong_and_what_cures_it(overrides: Sequence[str], texts: Sequence[str]) -> None:
    message = refused(*overrides)
    for text in texts:
        assert text in message
    assert message.startswith("The config has an error:"), message


def test_all_errors_come_at_once() -> None:
    message = refused("model=resnt18", "train.epoch=3", "train.log_every=0", "optimizer.lr=high", "seed=-1")
    assert "The config has 5 errors" in message


@pytest.mark.parametrize(
    ("overrides", "fix"),
    [
        (["strategy=loader"], "loader=mp_device_loader"),  # case 3: not one step would run
        (["strategy=loader", "device=multi"], "loader=mp_device_loader"),
        (["strategy=sync", "device=multi"], "device=single"),
        (["strategy=barrier"], "device=multi"),
        (["strategy=sync", "loader=mp_device_loader"], "loader=plain"),
        (["strategy=barrier", "device=multi", "loader=mp_device_loader"], "loader=plain"),
    ],
)
def test_case_3_a_strategy_that_contradicts_is_refused(overrides: Sequence[str], fix: str) -> None:
    message = refused(*overrides)
    assert f"use {fix}" in message
    assert "strategy=auto" in message


@pytest.mark.parametrize(
    ("device", "loader", "strategy"),
    [
        ("single", "plain", "sync"),
        ("multi", "plain", "barrier"),
        ("single", "mp_device_loader", "loader"),
        ("multi", "mp_device_loader", "loader"),
    ],
)
def test_auto_picks_the_strategy_and_its_name_is_accepted(device: str, loader: str, strategy: str) -> None:
    for name in ("auto", strategy):
        assert config(f"device={device}", f"loader={loader}", f"strategy={name}").strategy == strategy


@pytest.mark.parametrize("key", ["device.nprocs", "+device.nprocs", "nprocs", "+nprocs", "+train.num_processes"])
def test_case_11_a_number_of_processes_is_refused(key: str) -> None:
    message = refused(f"{key}=8")
    assert "device.replicas" in message
    assert "CPU_NUM_DEVICES" in message
    assert "TPU_NUM_DEVICES" in message


def test_case_12_colab() -> None:
    assert "PJRT_DEVICE=CPU" in refused("device=colab")
    assert config("device=colab", host=replace(CPU, pjrt_device="CPU")).replicas == 1
    assert config("device=colab", host=replace(TPU, colab=True)).platform == "TPU"
    assert "use device=colab" in refused("device=multi", host=COLAB)
    assert "use device=colab" in refused("device=multi", host=replace(TPU, colab=True))


def test_replicas_of_a_tpu_and_of_a_cpu() -> None:
    assert config("device=multi").replicas == 2
    assert config("device=multi", host=replace(CPU, cpu_num_devices=3)).replicas == 3
    assert "CPU_NUM_DEVICES=3" in refused("device=multi", "device.replicas=2", host=replace(CPU, cpu_num_devices=3))
    assert config("device=multi", host=TPU).replicas is None
    assert "TPU_NUM_DEVICES=2" in refused("device=multi", "device.replicas=2", host=TPU)
    assert "pip install 'xlaexp[tpu]'" in refused(host=replace(TPU, libtpu=False))


@pytest.mark.parametrize("option", ["loader_prefetch", "prefetch_size", "batchdim"])
def test_case_15_a_bad_loader_option_names_the_valid_ones(option: str) -> None:
    message = refused("loader=mp_device_loader", f"+loader.{option}=3")
    for valid in ("loader_prefetch_size", "device_prefetch_size", "batches_per_execution", "transfer_threads"):
        assert valid in message
    assert "greater than or equal to 1" in refused("loader=mp_device_loader", "loader.device_prefetch_size=0")
    assert "loader_prefetch_size" in refused("+loader.loader_prefetch_size=3")  # an option of the other loader


def test_case_18_zero_batches_name_samples_batch_size_and_replicas() -> None:
    message = refused("device=multi", "device.replicas=4", "loader.batch_size=400")
    for text in ("n=1438", "bs=400", "ws=4", "loader.batch_size=359 or less", "loader.drop_last=false"):
        assert text in message
    assert config("device=multi", "device.replicas=4", "loader.batch_size=359")
    assert config("device=multi", "device.replicas=4", "loader.batch_size=400", "loader.drop_last=false")


def test_case_32_checking_and_building_leave_the_config_unchanged() -> None:
    composed = config("optimizer.lr=3e-2")
    before = str(composed)
    assert composed.raw["optimizer"]["lr"] == composed.optimizer.args["lr"] == 0.03
    config()
    assert str(composed) == before


def test_a_choice_can_be_a_dotted_path_with_its_own_arguments() -> None:
    composed = config("model=user_package.parts.Unseeded", "model.dropout=0.25")
    assert (composed.model.module, composed.model.attribute) == ("user_package.parts", "Unseeded")
    assert composed.model.args == {"dropout": 0.25}
    assert "did you mean 'model.dropout'?" in refused("model=user_package.parts.Unseeded", "model.dropuot=1")


def test_a_plugin_registers_names() -> None:
    composed = config("plugins=[user_package]", "data=fake", "~data", "+data.name=numbered", "+data.samples=70")
    assert composed.data.module == "user_package.parts"
    assert "did you mean 'numbered'?" in refused("plugins=[user_package]", "~data", "+data.name=nunbered")


def test_users_configs_come_from_a_directory_of_theirs(tmp_path: Path) -> None:
    (tmp_path / "mine" / "model").mkdir(parents=True)
    (tmp_path / "mine" / "model" / "wide.yaml").write_text("name: mlp\nhidden: [1024]\n")
    assert config("model=wide", config_dir=tmp_path / "mine").model.args == {"hidden": [1024]}


IN_A_PROCESS = """
import sys
from xlaexp import cli
sys.argv = ["xlaexp", *{overrides}]
try:
    cli.main()
except SystemExit as end:
    code = end.code
print("code", code, "torch" in sys.modules, "torch_xla" in sys.modules)
"""


@pytest.mark.parametrize(
    ("overrides", "code"),
    [
        (["model=resnt18", "device=multi"], 2),
        (["loader.batch_size=9999"], 2),
        (["data=mnist", "data.download=false"], 2),
        (["-m", "seed=0,1", "train.epochs=???"], 2),  # case 31
        (["-m", "device=single,multi", "strategy=sync"], 2),
        (["hydra.run.dir=taken"], 2),
    ],
)
def test_errors_come_before_torch_is_imported_and_leave_nothing(
    overrides: list[str], code: int, tmp_path: Path
) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "environment.json").write_text("another run's")
    script = IN_A_PROCESS.format(overrides=overrides)
    started = time.perf_counter()
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.splitlines()[-1] == f"code {code} False False"
    assert "The config has" in ended.stderr
    assert time.perf_counter() - started < 30  # no more than a guard against a hang; figures are in the bench
    assert sorted(path.name for path in tmp_path.iterdir()) == ["taken"]
    assert (tmp_path / "taken" / "environment.json").read_text() == "another run's"
