"""Models, criteria and schedules."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from xlaexp.components import schedulers
from xlaexp.components.criteria import MSE, CrossEntropy
from xlaexp.components.models.cnn import CNN
from xlaexp.components.models.mlp import MLP
from xlaexp.components.models.resnet import resnet18
from xlaexp.result import improves
from xlaexp.train.gradients import per_sample


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (MLP(7, (3, 4), hidden=[5, 6], dropout=0.1), (3, 4)),
        (MLP(7, (9,), hidden=[]), (9,)),
        (CNN(7, (1, 8, 8)), (1, 8, 8)),
        (CNN(7, (3, 16, 12), channels=[4, 5, 6], dropout=0.1), (3, 16, 12)),
        (resnet18(7, (1, 8, 8)), (1, 8, 8)),
        (resnet18(7, (1, 65, 65)), (1, 65, 65)),
        (resnet18(7, (3, 65, 65)), (3, 65, 65)),
    ],
)
def test_models_map_samples_to_logits(model: nn.Module, shape: tuple[int, ...]) -> None:
    assert model(torch.randn(2, *shape)).shape == (2, 7)


def test_a_small_resnet_keeps_the_resolution_of_small_images() -> None:
    small, large = resnet18(10, (3, 32, 32)), resnet18(10, (3, 224, 224))
    assert small.conv1.stride == (1, 1)
    assert large.conv1.stride == (2, 2)


def test_models_refuse_shapes_they_cannot_take() -> None:
    with pytest.raises(ValueError, match=r"model\.channels"):
        CNN(10, (1, 8, 8), channels=[1, 1, 1, 1])
    with pytest.raises(ValueError, match="channels, height, width"):
        resnet18(10, (64,))


@pytest.mark.parametrize("criterion", [CrossEntropy(reduction="none"), MSE(reduction="none")])
def test_criteria_return_a_loss_a_sample_whose_mean_is_the_loss(criterion: Any) -> None:
    outputs, targets = torch.randn(5, 3), torch.tensor([0, 2, 1, 1, 0])
    losses = criterion(outputs, targets)
    assert losses.shape == (5,)
    torch.testing.assert_close(losses.mean(), type(criterion)()(outputs, targets))


def test_criteria_follow_their_formulas() -> None:
    outputs, targets = torch.randn(5, 3), torch.tensor([0, 2, 1, 1, 0])
    expected = -(
        0.7 * F.log_softmax(outputs, 1).gather(1, targets[:, None]) + 0.1 * F.log_softmax(outputs, 1).sum(1, True)
    )
    torch.testing.assert_close(CrossEntropy(0.3, "none")(outputs, targets), expected[:, 0])
    one_hot = torch.eye(3)[targets]
    torch.testing.assert_close(MSE("none")(outputs, targets), ((outputs - one_hot) ** 2).mean(1))
    torch.testing.assert_close(MSE()(outputs, one_hot), F.mse_loss(outputs, one_hot))


def test_losses_of_several_outputs_a_sample_are_averaged() -> None:
    targets = torch.zeros(2, dtype=torch.int64)
    assert per_sample(torch.tensor([[1.0, 3.0], [5.0, 7.0]]), targets, 2).tolist() == [2.0, 6.0]
    with pytest.raises(ValueError, match="reduction='none'"):
        per_sample(torch.tensor(1.0), targets, 2)


def rates(name: str, steps: int, **arguments: Any) -> list[float]:
    """The learning rates that a schedule gives to each step, with two steps an epoch; and the one after them."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.5)
    offered = {"total_steps": steps} if name == "one_cycle" else {"total_steps": steps, "steps_per_epoch": 2}
    scheduler = getattr(schedulers, name)(optimizer, **offered, **arguments)
    taken = []
    for _ in range(steps):
        taken.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return [*taken, optimizer.param_groups[0]["lr"]]


def test_schedules_follow_their_formulas() -> None:
    assert rates("constant", 3) == [0.5] * 4
    assert rates("constant", 4, warmup=2) == [0.25] + [0.5] * 4
    halves = rates("step", 7, every=1, gamma=0.5)
    assert halves == pytest.approx([0.5, 0.5, 0.25, 0.25, 0.125, 0.125, 0.0625, 0.0625])
    assert rates("step", 7, every=2, unit="step", gamma=0.5) == halves
    assert rates("step", 4, every=1, gamma=0.5, warmup=1, warmup_unit="epoch")[:3] == [0.25, 0.5, 0.25]
    cosine = rates("cosine", 10, warmup=0.2, min_factor=0.1)
    expected = [0.25, 0.5] + [0.5 * (0.1 + 0.9 * (1 + math.cos(math.pi * k / 8)) / 2) for k in range(9)]
    assert cosine == pytest.approx(expected)
    assert rates("cosine", 10, warmup=2, min_factor=0.1) == cosine
    assert rates("cosine", 10, warmup=1, warmup_unit="epoch", min_factor=0.1) == cosine
    assert rates("linear", 4) == pytest.approx([0.5, 0.375, 0.25, 0.125, 0])
    assert rates("linear", 4, warmup=0.5, min_factor=0.5) == pytest.approx([0.25, 0.5, 0.5, 0.375, 0.25])
    cycle = rates("one_cycle", 10, pct_start=0.3)
    assert max(cycle) == pytest.approx(0.5)
    assert cycle.index(max(cycle)) == 2
    assert max(rates("one_cycle", 10, max_lr=0.2)) == pytest.approx(0.2)


@pytest.mark.parametrize("steps", [1, 2, 7])
def test_no_schedule_takes_a_step_of_zero(steps: int) -> None:
    for name, arguments in (
        ("cosine", {"warmup": 0.3}),
        ("linear", {"warmup": 0.3}),
        ("one_cycle", {}),
        ("step", {"every": 1}),
    ):
        assert min(rates(name, steps, **arguments)[:-1]) > 0, name


def test_a_nan_is_never_better_than_a_number() -> None:
    nan = float("nan")
    assert improves(1.0, None, "max")
    assert improves(2.0, 1.0, "max")
    assert not improves(2.0, 1.0, "min")
    assert not improves(1.0, 1.0, "max")
    for mode in ("max", "min"):
        assert not improves(nan, 1.0, mode)
        assert improves(1.0, nan, mode)
        assert improves(nan, None, mode)
