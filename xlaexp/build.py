"""From a config to parts: the registry-driven builder."""

import importlib
import math
import re
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from xlaexp import streams
from xlaexp.callbacks import Callback
from xlaexp.components.data import loading
from xlaexp.components.data.padding import Padding
from xlaexp.components.data.sampling import EvalBatches, TrainBatches
from xlaexp.config.schema import Component, Config, Loader, MpDeviceLoader, ParamGroups
from xlaexp.registry import REGISTRIES
from xlaexp.train.averaging import Average
from xlaexp.train.gradients import Clipping, Forward, Gradients
from xlaexp.train.metrics import Metrics
from xlaexp.train.parts import Parts
from xlaexp.train.strategy import STRATEGIES
from xlaexp.xla import collectives, remat, runtime
from xlaexp.xla.feed import DirectFeed, Feed, ParallelFeed


def component(config: Component, **offered: Any) -> Any:
    """Imports and calls a component.

    Args:
        config: which, and with what arguments.
        offered: arguments that the builder has for it, passed where it takes them and the config gives none.
    """
    module = importlib.import_module(config.module)
    if config.attribute is None:
        factory = REGISTRIES[config.kind].get(config.name)
    else:
        factory = getattr(module, config.attribute)
    extra = {name: value for name, value in offered.items() if name in config.accepts and name not in config.args}
    if config.kind == "metrics" and not isinstance(factory, type):
        return partial(factory, **extra, **config.args)  # a function is a metric itself
    return factory(**extra, **config.args)


def build(config: Config) -> Parts:
    """Assembles one replica's parts on its device. All replicas have to call it: weights are broadcast.

    Raises:
        ValueError: the data leave no batch to train on, or a component refuses its arguments.
    """
    device, ordinal, replicas = runtime.device(), runtime.ordinal(), runtime.world_size()
    for plugin in config.plugins:
        importlib.import_module(plugin)
    data = component(config.data)
    train, val = data.train(), data.val()

    def shares(replica: int) -> TrainBatches:
        return TrainBatches(
            samples=len(train),
            replicas=replicas,
            ordinal=replica,
            seed=config.seed,
            batch_size=config.loader.batch_size,
            drop_last=config.loader.drop_last,
            limit=config.train.overfit_batches,
        )

    batches = shares(ordinal)
    if config.train.overfit_batches:
        seen = [
            index
            for replica in range(replicas)
            for batch in shares(replica)
            for index in batch.indices
            if index is not None
        ]
        val, val_indices = train, list(dict.fromkeys(seen))
    else:
        val_indices = list(range(len(val)))
    val_sampler = EvalBatches(val_indices, replicas, ordinal, config.loader.batch_size, config.seed)
    workers = config.loader.num_workers
    pad_to = config.loader.pad_to
    collate = None if pad_to is None else Padding(pad_to, config.loader.pad_value)
    steps_per_epoch = math.ceil(batches.per_epoch / config.train.accumulate)
    steps = config.train.epochs * steps_per_epoch
    total_steps = min(steps, config.train.max_steps or steps)

    with streams.seeded(config.seed):
        spec = data.spec
        model: nn.Module = component(config.model, num_classes=spec.num_classes, input_shape=spec.input_shape)
    if config.train.remat and not remat.rematerialise(model):
        raise ValueError(
            f"train.remat: model {config.model.name!r} has no blocks to compute again; use train.remat=false"
        )
    model = to_device(model, device)
    collectives.broadcast(model)
    criterion = component(config.criterion, reduction="none")
    if isinstance(criterion, nn.Module):
        criterion = criterion.to(device)
    # The optimizer comes afterwards: .to() replaces the parameters.
    optimizer = component(config.optimizer, params=grouped(model, config.param_groups))
    scheduler = component(
        config.scheduler, optimizer=optimizer, total_steps=total_steps, steps_per_epoch=steps_per_epoch
    )
    forward = Forward(model, criterion, config.precision == "bf16")
    gradients = Gradients(forward, optimizer, device)
    clipping = Clipping(optimizer, config.train.clip_norm, config.train.clip_value)
    average = Average(model, optimizer, config.train.ema_decay) if config.train.ema_decay else None
    return Parts(
        device=device,
        replicas=replicas,
        model=model,
        forward=forward,
        optimizer=optimizer,
        scheduler=scheduler,
        gradients=gradients,
        clipping=clipping,
        average=average,
        strategy=STRATEGIES[config.strategy](gradients, optimizer, feed(config.loader, device)),
        train_loader=loading.loader(loading.Batches(train, collate), batches, workers),
        batches=batches,
        reseed=lambda step: runtime.reseed(config.seed, ordinal, step, device),
        val_loader=loading.loader(loading.MaskedBatches(val, collate), val_sampler, workers),
        metrics=Metrics({name: component(m, num_classes=spec.num_classes) for name, m in config.metrics.items()}),
        train_samples=replicas * config.loader.batch_size * config.train.accumulate,
        val_samples=len(val_indices),
        steps_per_epoch=steps_per_epoch,
        total_steps=total_steps,
    )


def to_device(model: nn.Module, device: torch.device) -> nn.Module:
    """The model on the device, with the parameters shared that were shared before: ``.to`` unties them."""
    names: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    model = model.to(device)
    for first, *others in names.values():
        for name in others:
            module, _, attribute = name.rpartition(".")
            setattr(model.get_submodule(module), attribute, model.get_parameter(first))
    return model


def grouped(model: nn.Module, groups: ParamGroups) -> list[Any]:
    """What an optimizer gets as ``params``.

    Args:
        model: on the device.
        groups: see the schema.

    Raises:
        ValueError: a group fits no parameter.
    """
    if groups == "all":
        return list(model.parameters())
    named = dict(model.named_parameters())
    if groups == "no_decay":
        flat = [parameter for parameter in named.values() if parameter.ndim <= 1]
        rest = [parameter for parameter in named.values() if parameter.ndim > 1]
        found: list[dict[str, Any]] = [{"params": rest}, {"params": flat, "weight_decay": 0.0}]
        return [group for group in found if group["params"]]
    chosen: list[dict[str, Any]] = []
    for group in groups:
        fitting = [name for name in named if re.search(group.params, name)]
        if not fitting:
            raise ValueError(
                f"param_groups: {group.params!r} fits no parameter of the model; it has {', '.join(named)}"
            )
        chosen.append({"params": [named.pop(name) for name in fitting], **group.options})
    # The rest comes first: what is shown as the learning rate is that of the first group.
    return [{"params": list(named.values())}, *chosen] if named else chosen


def feed(loader: Loader, device: torch.device) -> Feed:
    """What moves batches to the device; ``loader=mp_device_loader`` adds ParallelLoader's options to a loader's."""
    if not isinstance(loader, MpDeviceLoader):
        return DirectFeed(device)
    shared = {field.name for field in fields(Loader)} | {"name"}
    return ParallelFeed(device, {f.name: getattr(loader, f.name) for f in fields(loader) if f.name not in shared})


def callbacks(config: Config, directory: Path) -> dict[str, Callback]:
    """The trackers and callbacks that the config names; replica 0 has them."""
    named = {f"tracking.{name}": found for name, found in config.tracking.items()}
    named |= {f"callbacks.{name}": found for name, found in config.callbacks.items()}
    return {name: component(found, directory=directory) for name, found in named.items()}
