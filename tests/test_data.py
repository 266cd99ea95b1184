"""Data sets of files: what is read, and what is said of files that are missing or damaged."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from composing import config
from fresh import output, xlaexp
from test_config_errors import refused
from test_sweep import ended_well
from tiny_data import IMAGES, LABELS, MNIST, cifar, idx, md5, write
from torchvision import datasets

from xlaexp.components.data.cifar import Cifar10, Cifar100
from xlaexp.components.data.mnist import FashionMnist, Mnist
from xlaexp.components.data.vision import Vision
from xlaexp.registry import DATASETS

_random = np.random.default_rng(1)


@pytest.mark.parametrize(
    ("kind", "mean", "std"), [(Mnist, 0.1307, 0.3081), (FashionMnist, 0.2860, 0.3530)], ids=["mnist", "fashion_mnist"]
)
def test_idx_files_are_read_and_normalised(kind: type[Mnist], mean: float, std: float, tmp_path: Path) -> None:
    write(tmp_path / kind._folder, MNIST)
    data = kind(tmp_path, download=False)
    assert data.lengths() == (len(data.train()), len(data.val())) == (32, 8)
    for part, samples in (("train", data.train()), ("t10k", data.val())):
        inputs, targets = samples.batch([3, 1])
        assert (inputs.shape, inputs.dtype, targets.dtype) == ((2, *data.spec.input_shape), torch.float32, torch.int64)
        expected = (IMAGES[part][[3, 1], None] / 255 - mean) / std
        np.testing.assert_allclose(inputs, expected, rtol=1e-5, atol=1e-6)
        assert targets.tolist() == LABELS[part][[3, 1]].tolist()
        one, target = samples[3]
        assert torch.equal(one, inputs[0])
        assert target == targets[0]


def tiny_cifar(kind: type[Vision], root: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, np.ndarray]:
    """Writes few images, in all files that there have to be, and has torchvision expect their checksums."""
    key, names_key = ("labels", "label_names") if kind is Cifar10 else ("fine_labels", "fine_label_names")
    *batches, names = kind._files
    images = {name: _random.integers(256, size=(2, 3, 32, 32), dtype=np.uint8) for name in batches}
    last = kind.spec.num_classes - 1
    files = {name: cifar(images[name], [number, last], key) for number, name in enumerate(batches)}
    files[names] = pickle.dumps({names_key: [f"kind {number}" for number in range(last + 1)]}, protocol=2)
    write(root / kind._folder, files)
    theirs = getattr(datasets, kind._torchvision)
    checked = [[name, md5(files[name])] for name in batches]
    monkeypatch.setattr(theirs, "train_list", checked[:-1])
    monkeypatch.setattr(theirs, "test_list", checked[-1:])
    monkeypatch.setattr(theirs, "meta", {"filename": names, "key": names_key, "md5": md5(files[names])})
    return images


@pytest.mark.parametrize(
    ("kind", "mean", "std"),
    [
        (Cifar10, (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
        (Cifar100, (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    ],
    ids=["cifar10", "cifar100"],
)
def test_cifar_files_are_read_normalised_and_compared_with_their_checksums(
    kind: type[Cifar10], mean: list[float], std: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = tiny_cifar(kind, tmp_path, monkeypatch)
    data = kind(tmp_path, download=False)
    assert data.lengths() == (50000, 10000)
    *training, test = files.values()
    for images, samples in ((np.concatenate(training), data.train()), (test, data.val())):
        inputs, targets = samples.batch(range(len(images)))
        assert (inputs.shape[1:], inputs.dtype, targets.dtype) == (data.spec.input_shape, torch.float32, torch.int64)
        expected = (images / 255 - np.reshape(mean, (3, 1, 1))) / np.reshape(std, (3, 1, 1))
        np.testing.assert_allclose(inputs, expected, rtol=1e-5, atol=1e-6)
        assert targets[1::2].tolist() == [data.spec.num_classes - 1] * (len(images) // 2)
    damaged = tmp_path / kind._folder / kind._files[0]
    damaged.write_bytes(damaged.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"cannot be read: .* corrupted; put .*, or remove that directory"):
        data.train()


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist", "cifar10", "cifar100"])
def test_the_config_has_the_usual_values_and_a_root_where_the_command_was_given(name: str, tmp_path: Path) -> None:
    args = config(f"data={name}").data.args
    assert args["root"] == tmp_path / "data"
    built = DATASETS.get(name)(args["root"])
    assert (list(built._mean), list(built._std), built._download) == (args["mean"], args["std"], args["download"])
    assert built.lengths() == ((50000, 10000) if "cifar" in name else (60000, 10000))
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("overrides", "texts"),
    [
        (
            ["data=mnist", "data.root=a", "data.download=false"],
            ["data: there is no MNIST in data.root={0}/a; put train-images-idx3-ubyte", "{0}/a/MNIST/raw, or allow "],
        ),
        (
            ["data=cifar10", "data.download=false"],
            ["no CIFAR10 in data.root={0}/data; put data_batch_1", "{0}/data/cifar-10-batches-py", "download=true"],
        ),
        (["data=mnist", "~data.root"], ["data.root", "data.root=..."]),
        (["data=mnist", "data.mean=[1,2]"], ["data.mean=[1.0, 2.0] has to have one number for each of the 1 channels"]),
        (["data=cifar100", "data.std=[1,0,1]"], ["data.std=[1.0, 0.0, 1.0] has a number that is not greater than 0"]),
    ],
)
def test_data_that_cannot_be_are_refused_with_the_config(
    overrides: list[str], texts: list[str], tmp_path: Path
) -> None:
    message = refused(*overrides)
    for text in texts:
        assert text.format(tmp_path) in message


LABEL_FILE, IMAGE_FILE = "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte"


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda raw: (raw / LABEL_FILE).unlink(), "{0} is incomplete, it has no train-labels-idx1-ubyte; put "),
        (lambda raw: (raw / LABEL_FILE).write_bytes(b""), "{0}/train-labels-idx1-ubyte is damaged: it ends after 0"),
        (lambda raw: (raw / LABEL_FILE).write_bytes(MNIST[IMAGE_FILE]), "it does not begin as it has to"),
        (
            lambda raw: (raw / IMAGE_FILE).write_bytes(MNIST[IMAGE_FILE][:-1]),
            "{0}/t10k-images-idx3-ubyte is damaged: it has 6287 bytes, with 8 entries it would have 6288",
        ),
        (lambda raw: (raw / LABEL_FILE).write_bytes(idx(LABELS["t10k"])), "other numbers of labels than of images"),
    ],
    ids=["missing", "empty", "another", "cut", "fewer"],
)
def test_damaged_files_are_refused_with_the_config(damage: Callable[[Path], None], said: str, tmp_path: Path) -> None:
    raw = write(tmp_path / "data" / "MNIST" / "raw", MNIST)
    damage(raw)
    message = refused("data=mnist")
    assert said.format(raw) in message
    assert f"into {raw}, or remove that directory and allow data.download=true" in message


def test_labels_that_do_not_exist_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "MNIST" / "raw", {**MNIST, LABEL_FILE: idx(LABELS["train"] + 1)})
    with pytest.raises(ValueError, match="has labels of up to 10"):
        Mnist(tmp_path).train()


def test_a_run_on_files_that_are_there(tmp_path: Path) -> None:
    write(tmp_path / "mine" / "MNIST" / "raw", MNIST)
    data = ("data=mnist", "data.root=mine", "data.download=false", "loader.batch_size=8")
    ended_well(xlaexp(*data, "model=mlp", "debug=fast_run", cwd=tmp_path))
    assert json.loads((output(tmp_path) / "result.json").read_text())["steps"] == 3
    assert [path.name for path in (tmp_path / "mine").rglob("*") if path.is_file() and path.name not in MNIST] == []
