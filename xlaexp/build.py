"""From a config to parts: the registry-driven builder."""

import importlib
import threading
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from torch import nn

from xlaexp.callbacks import Callback
from xlaexp.components.data import loading
from xlaexp.config.schema import Component, Config, Loader, MpDeviceLoader
from xlaexp.registry import REGISTRIES
from xlaexp.train.gradients import Gradients
from xlaexp.train.parts import Parts
from xlaexp.train.strategy import STRATEGIES
from xlaexp.xla import collectives, runtime
from xlaexp.xla.feed import DirectFeed, Feed, ParallelFeed

# Replica threads share torch's global generator: a model is built by one at a time, from its own seed.
_global_generator = threading.Lock()


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

    def shares(replica: int) -> loading.TrainBatches:
        return loading.TrainBatches(
            samples=len(train),
            replicas=replicas,
            ordinal=replica,
            seed=config.seed,
            batch_size=config.loader.batch_size,
            drop_last=config.loader.drop_last,
            limit=config.train.overfit_batches,
        )

    sampler = shares(ordinal)
    if config.train.overfit_batches:
        seen = [index for replica in range(replicas) for batch in shares(replica) for index in batch]
        val, val_indices = train, list(dict.fromkeys(seen))
    else:
        val_indices = list(range(len(val)))
    val_sampler = loading.EvalBatches(val_indices, replicas, ordinal, config.loader.batch_size)
    workers = config.loader.num_workers
    draws = runtime.stream(config.seed, ordinal)
    train_loader = loading.loader(loading.Batches(train), sampler, workers, draws)
    steps = config.train.epochs * len(train_loader)
    total_steps = min(steps, config.train.max_steps or steps)

    with _global_generator, torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        spec = data.spec
        model: nn.Module = component(config.model, num_classes=spec.num_classes, input_shape=spec.input_shape)
    # The optimizer comes afterwards: .to() replaces the parameters.
    model = model.to(device)
    collectives.broadcast(model)
    criterion = component(config.criterion, reduction="none")
    if isinstance(criterion, nn.Module):
        criterion = criterion.to(device)
    optimizer = component(config.optimizer, params=list(model.parameters()))
    scheduler = component(
        config.scheduler, optimizer=optimizer, total_steps=total_steps, steps_per_epoch=len(train_loader)
    )
    gradients = Gradients(model, criterion, optimizer, device)
    strategy = STRATEGIES[config.strategy](gradients, optimizer, feed(config.loader, device))
    return Parts(
        device=device,
        replicas=replicas,
        model=model,
        criterion=criterion,
        optimizer=optimizer,
        scheduler=scheduler,
        gradients=gradients,
        strategy=strategy,
        train_loader=train_loader,
        set_epoch=sampler.set_epoch,
        val_loader=loading.loader(loading.MaskedBatches(val), val_sampler, workers, draws),
        train_samples=replicas * config.loader.batch_size,
        val_samples=len(val_indices),
        total_steps=total_steps,
    )


def feed(loader: Loader, device: torch.device) -> Feed:
    """What moves batches to the device; ``loader=mp_device_loader`` adds ParallelLoader's options to a loader's."""
    if not isinstance(loader, MpDeviceLoader):
        return DirectFeed(device)
    shared = {field.name for field in fields(Loader)} | {"name"}
    return ParallelFeed(device, {f.name: getattr(loader, f.name) for f in fields(loader) if f.name not in shared})


def trackers(config: Config, directory: Path) -> list[Callback]:
    """The trackers that the config names; replica 0 has them."""
    return [component(tracker, directory=directory) for tracker in config.tracking.values()]
