"""Names and signatures, found without importing anything."""

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from xlaexp import source
from xlaexp.config import catalog
from xlaexp.registry import MODELS, REGISTRIES, Registry, nearest, unknown
from xlaexp.signatures import REQUIRED, UNREAD, signature


def test_a_registry_names_the_first_owner_of_a_name() -> None:
    registry = Registry("thing", "THINGS")

    @registry.register("a")
    class First: ...

    with pytest.raises(ValueError, match=r"'a' is already registered by .*First; .*Second needs another name"):

        @registry.register("a")
        class Second: ...

    assert registry.get("a") is First
    registry.register("a")(First)  # its own module, imported again
    registry.register("another")(First)
    assert list(registry) == ["a", "another"]
    assert "a" in registry
    with pytest.raises(KeyError, match="did you mean 'another'"):
        registry.get("anothr")


def test_an_unknown_name_lists_the_nearest() -> None:
    assert nearest("ADAM", ["adam", "sgd"]) == "adam"
    assert nearest("xyz", ["adam", "sgd"]) is None
    assert unknown("thing", "b", [f"name{i}" for i in range(20)]).endswith("... (20 in all)")


def test_the_catalog_finds_what_the_registries_hold() -> None:
    import xlaexp.components.callbacks.early_stopping
    import xlaexp.components.criteria
    import xlaexp.components.data.cifar
    import xlaexp.components.data.digits
    import xlaexp.components.data.fake
    import xlaexp.components.data.mnist
    import xlaexp.components.metrics
    import xlaexp.components.models.cnn
    import xlaexp.components.models.mlp
    import xlaexp.components.models.resnet
    import xlaexp.components.optimizers
    import xlaexp.components.schedulers
    import xlaexp.tracking.csv
    import xlaexp.tracking.tensorboard  # noqa: F401

    for kind, registry in REGISTRIES.items():
        found = {
            name: entry for package in catalog.BUILTIN for name, entry in catalog.registered(package)[kind].items()
        }
        assert set(found) == {name for name in registry if "user_package" not in registry.get(name).__module__}
        for name, entry in found.items():
            assert registry.get(name).__module__ == entry.module
            assert registry.get(name).__name__ == entry.attribute
    assert "mlp" in MODELS


def test_the_catalog_knows_the_libraries() -> None:
    import torch
    import torchvision.models

    assert set(catalog.torchvision_models()) == set(torchvision.models.list_models(torchvision.models))
    for name in catalog.torch_optimizers():
        assert issubclass(getattr(torch.optim, name), torch.optim.Optimizer)
    assert {"SGD", "AdamW", "RMSprop"} <= set(catalog.torch_optimizers())
    assert "LBFGS" not in catalog.torch_optimizers()


@pytest.mark.parametrize("name", catalog.torch_optimizers())
def test_signatures_of_optimizers_are_those_of_the_classes(name: str) -> None:
    import torch

    found = signature(f"torch.optim.{name}")
    assert found is not None
    real = dict(inspect.signature(getattr(torch.optim, name)).parameters)
    assert list(found.parameters) == list(real)
    for key, parameter in found.parameters.items():
        assert parameter.required == (real[key].default is inspect.Parameter.empty)
        if parameter.default not in (REQUIRED, UNREAD):
            assert parameter.default == real[key].default


def test_signatures_follow_forwarded_keywords() -> None:
    found = signature("torchvision.models.resnet18")
    assert found is not None
    assert {"weights", "num_classes", "zero_init_residual"} <= found.parameters.keys()
    assert not found.open
    assert signature("torchvision.models.no_such_model") is None


def test_source_is_found_but_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "loud.py").write_text(
        "import json\nfrom os import path\nprint('imported')\nraise SystemExit\n"
        "class Base:\n    def __init__(self, a: int, b: float = 1.0, *, c='x', **rest): ...\n"
        "class Child(Base): ...\n"
        "try:\n    import numpy\nexcept ImportError: ...\n"
    )
    assert source.imports("loud") == {"json", "os", "numpy"}
    found = signature("loud.Child")
    assert found is not None
    assert found.open
    assert found.parameters["a"].required
    assert [found.parameters[name].default for name in "bc"] == [1.0, "x"]
    assert source.locate("loud.Missing") is None
    assert source.module_file("no_such_module_anywhere") is None


def test_importing_the_package_starts_nothing() -> None:
    script = "import sys, xlaexp, xlaexp.cli; print('torch' in sys.modules, 'torch_xla' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert ended.stdout.strip() == "False False"
