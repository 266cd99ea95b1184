"""Where a training stands, and everything that it takes to go on from there as if nothing had happened."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from xlaexp.train.parts import Parts
from xlaexp.train.readings import Readings
from xlaexp.xla import collectives, runtime


@dataclass
class Progress:
    """How far a training has come."""

    step: int = 0
    """Optimizer steps taken."""
    epoch: int = 0
    """Epochs that have been trained and, if it was time, evaluated."""
    samples: int = 0
    """Samples of the epoch after them that all replicas together have had."""
    ended: bool = False
    """Whether the training is over, and evaluated."""
    stopped: bool = False
    """Whether a callback has ended it."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Of the last evaluation."""
    best: dict[str, float] = field(default_factory=dict)
    """Of the evaluation where the objective was best."""


def capture(parts: Parts, progress: Progress, readings: Readings) -> dict[str, Any]:
    """The state of a training, on the CPU. All replicas have to call it: what is each one's own is gathered.

    Everything has to have been executed and read, as after :meth:`Strategy.drain`.
    """
    buffers = _float_buffers(parts.model)
    own = [parts.gradients.losses, *(buffer.flatten() for buffer in buffers.values())]
    # Of one replica nothing is computed on the device: that would be a graph of its own.
    gathered = own if parts.replicas == 1 else [collectives.gather(torch.cat(own))]
    if parts.replicas > 1 and runtime.ordinal() > 0:
        return {}
    content: dict[str, Any] = runtime.download(
        {
            "model": parts.model.state_dict(),
            "optimizer": parts.optimizer.state_dict(),
            "scheduler": parts.scheduler.state_dict(),
            **({"average": parts.average.state_dict()} if parts.average else {}),
            "gathered": gathered,
        }
    )
    rows = torch.cat(content.pop("gathered")).view(parts.replicas, -1)
    sizes = [1, *(buffer.numel() for buffer in buffers.values())]
    losses, *columns = torch.split(rows, sizes, dim=1)
    per_replica = {name: c.view(-1, *buffers[name].shape) for name, c in zip(buffers, columns, strict=True)}
    if parts.replicas > 1:
        for name, values in per_replica.items():
            content["model"][name] = values.mean(0)  # what one who loads the weights alone should have
    return {
        **content,
        "step": progress.step,
        "epoch": progress.epoch,
        "samples": progress.samples,
        "ended": progress.ended,
        "stopped": progress.stopped,
        "metrics": dict(progress.metrics),
        "best": dict(progress.best),
        "replicas": parts.replicas,
        "losses": losses.flatten().tolist(),
        "last_reading": readings.last_step,
        "reading": dict(readings.last),
        "buffers": per_replica if parts.replicas > 1 else {},
        "rng": _host_streams(),
    }


def restore(parts: Parts, progress: Progress, readings: Readings, content: Mapping[str, Any]) -> bool:
    """Puts a captured state back.

    Returns:
        Whether the training goes on exactly as it would have; not so with another number of replicas.

    Raises:
        RuntimeError, ValueError, KeyError: it is the state of another model or optimizer.
    """
    exact = bool(content["replicas"] == parts.replicas)
    ordinal = runtime.ordinal()
    model = dict(content["model"])
    if exact:
        model |= {name: values[ordinal] for name, values in content["buffers"].items()}
    parts.model.load_state_dict(model)
    parts.optimizer.load_state_dict(content["optimizer"])
    parts.scheduler.load_state_dict(content["scheduler"])
    if parts.average:
        parts.average.load_state_dict(content["average"])
    if exact:
        parts.gradients.give_back(content["losses"][ordinal])
        readings.last_step = content["last_reading"]
    else:
        readings.last_step = content["step"]
    readings.last = dict(content.get("reading", {}))
    progress.step, progress.epoch, progress.samples = content["step"], content["epoch"], content["samples"]
    progress.ended, progress.stopped = content["ended"], content["stopped"]
    progress.metrics, progress.best = dict(content["metrics"]), dict(content["best"])
    _set_host_streams(content["rng"])
    return exact


def _float_buffers(model: nn.Module) -> dict[str, torch.Tensor]:
    saved = model.state_dict().keys()
    return {name: buffer for name, buffer in model.named_buffers() if buffer.is_floating_point() and name in saved}


def _host_streams() -> dict[str, Any]:
    """States of the generators of torch, numpy and random, as tensors and plain numbers."""
    version, words, gauss = random.getstate()
    kind, keys, position, has_gauss, cached = np.random.get_state()
    return {
        "torch": torch.default_generator.get_state(),
        "numpy": [kind, torch.from_numpy(np.asarray(keys).astype(np.int64)), position, has_gauss, cached],
        "python": [version, torch.tensor(words), gauss],
    }


def _set_host_streams(streams: Mapping[str, Any]) -> None:
    torch.default_generator.set_state(streams["torch"])
    kind, keys, position, has_gauss, cached = streams["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), position, has_gauss, cached))
    version, words, gauss = streams["python"]
    random.setstate((version, tuple(words.tolist()), gauss))
