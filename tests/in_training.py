"""What tests of the training run inside replicas."""

from pathlib import Path
from typing import Any

import torch
from in_replica import leave, parts
from torch import nn

from xlaexp import restoring
from xlaexp.callbacks import Callback
from xlaexp.config.schema import Config
from xlaexp.train.evaluate import evaluate
from xlaexp.train.gradients import Clipping
from xlaexp.train.loop import fit
from xlaexp.train.readings import Readings
from xlaexp.train.saving import Saving
from xlaexp.train.state import Progress, capture
from xlaexp.xla import collectives, lockstep, runtime


def steps(ordinal: int, config: Config, directory: Path) -> None:
    """Trains, and leaves weights, the learning rate of each optimizer step and the last one, and scheduler steps."""
    built = parts(ordinal, config)
    rates: list[float] = []
    built.optimizer.register_step_post_hook(lambda optimizer, *_: rates.append(optimizer.param_groups[0]["lr"]))
    result = fit(built, config.train, config.objective, Callback(), Readings(built, 1, Callback()))
    assert result.steps == len(rates)
    torch.save(runtime.download(built.model.state_dict()), directory / f"last-{ordinal}.pt")
    found = {"rates": rates, "last": built.optimizer.param_groups[0]["lr"], "scheduler": built.scheduler.last_epoch}
    leave(directory / f"steps-{ordinal}.json", found)


def restored(ordinal: int, config: Config, directory: Path) -> None:
    """Puts the state of a checkpoint back, and leaves the devices on which everything is then, and the moments."""
    built = parts(ordinal, config)
    readings = Readings(built, 1, Callback())
    saving = Saving(built, config.checkpoint, readings, Callback(), None)
    found = restoring.to_go_on_from(config, directory)
    assert found is not None
    restoring.resume(*found, built, Progress(), readings, Callback(), saving)
    assert built.average is not None
    owned = [parameter for group in built.optimizer.param_groups for parameter in group["params"]]
    assert {*map(id, owned)} == {*map(id, built.model.parameters())} == {*map(id, built.optimizer.state)}
    moments = {
        f"{number}.{name}": value
        for number, parameter in enumerate(owned)
        for name, value in built.optimizer.state[parameter].items()
        if value.shape == parameter.shape
    }
    tensors = {
        "parameters": built.model.parameters(),
        "buffers": built.model.buffers(),
        "averages": built.average.state_dict().values(),
        "moments": moments.values(),
    }
    places = {name: sorted({str(value.device) for value in values}) for name, values in tensors.items()}
    leave(directory / f"places-{ordinal}.json", places)
    torch.save(runtime.download(moments), directory / f"moments-{ordinal}.pt")


def clipped(ordinal: int, config: Config, directory: Path) -> None:
    """Leaves what a step of SGD with learning rate 1 makes of zeros, for gradients that differ between replicas."""
    lockstep.install()
    found = []
    for gradients, norm, value in (
        (([3.0, 4.0], [-3.0, -3.8]), 1.0, None),  # case 8
        (([1.0, 0.0], [3.0, 0.0]), None, None),
        (([1.0, 0.0], [3.0, 0.0]), 1.0, None),
        (([6.0, 8.0], [6.0, 8.0]), 5.0, None),
        (([1.0, -4.0], [3.0, -4.0]), None, 1.5),
    ):
        weight = nn.Parameter(torch.zeros(2).to(runtime.device()))
        optimizer = torch.optim.SGD([weight], lr=1.0)
        clipping = Clipping(optimizer, norm, value)
        weight.grad = torch.tensor(gradients[ordinal]).to(runtime.device())
        collectives.optimizer_step(optimizer, barrier=True)
        found.append([[-x for x in weight.tolist()], None if clipping.norm is None else clipping.norm.item()])
    leave(directory / f"clipped-{ordinal}.json", found)


def dtypes(ordinal: int, config: Config, directory: Path) -> None:
    """Leaves the types of outputs, losses, gradients and parameters."""
    built = parts(ordinal, config)
    inputs, targets = next(iter(built.strategy.batches(built.train_loader)))
    outputs, losses = built.forward(inputs, targets)
    built.gradients((inputs, targets))
    runtime.sync()
    parameter = next(built.model.parameters())
    assert parameter.grad is not None
    tensors = {"outputs": outputs, "losses": losses, "gradients": parameter.grad, "parameters": parameter}
    leave(directory / "dtypes.json", {name: str(tensor.dtype) for name, tensor in tensors.items()})


def statistics(ordinal: int, config: Config, directory: Path) -> None:
    """Leaves running means that differ between replicas, as they are saved and after an evaluation."""
    built = parts(ordinal, config)
    (norm,) = [module for module in built.model.modules() if isinstance(module, nn.BatchNorm2d)]
    assert norm.running_mean is not None
    norm.running_mean = torch.full_like(norm.running_mean, 2.0 * ordinal, device="cpu").to(runtime.device())
    runtime.sync()
    content = capture(built, Progress(), Readings(built, 1, Callback()))
    own = float(norm.running_mean[0])
    evaluate(built)
    if ordinal == 0:
        (name,) = [name for name in content["model"] if name.endswith("running_mean")]
        saved = {"model": content["model"][name][0].item(), "replicas": content["buffers"][name][:, 0].tolist()}
        leave(directory / "statistics.json", {**saved, "own": own, "evaluated": float(norm.running_mean[0])})


def tied(ordinal: int, config: Config, directory: Path) -> None:
    """Leaves whether tied weights are one parameter on the device, and stay equal in training."""
    built = parts(ordinal, config)
    model: Any = built.model
    same = model.decoder.weight is model.encoder.weight
    owned = sum(len(group["params"]) for group in built.optimizer.param_groups)
    fit(built, config.train, config.objective, Callback(), Readings(built, 1, Callback()))
    state = runtime.download(model.state_dict())
    equal = torch.equal(state["decoder.weight"], state["encoder.weight"])
    leave(directory / "tied.json", {"same": same, "owned": owned, "equal": equal})
