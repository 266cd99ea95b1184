"""The device, its random stream, the step boundary, and transfers."""

import random
from typing import Any

import numpy as np
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as met
import torch_xla.runtime as xr


def is_initialized() -> bool:
    """Whether this process has started the XLA runtime; a launch is impossible from then on."""
    return bool(torch_xla._XLAC._xla_runtime_is_initialized())


def device() -> torch.device:
    """This replica's device. Starts the runtime: call it inside the replica only."""
    found: torch.device = torch_xla.device()
    return found


def ordinal() -> int:
    """This replica's number among all replicas."""
    return int(xr.global_ordinal())


def world_size() -> int:
    """The number of replicas."""
    return int(xr.world_size())


def device_kind() -> str:
    """What kind of hardware this replica runs on: CPU, TPU, ..."""
    return str(xm.xla_device_hw(device()))


def stream(base: int, replica: int) -> int:
    """A seed for one replica's own random stream, unlike those of other replicas and other seeds.

    Args:
        base: seed of the run.
        replica: the replica's ordinal.
    """
    return int(np.random.SeedSequence([base, replica]).generate_state(1)[0])


def seed(base: int, replica: int) -> None:
    """Seeds every random stream that this replica may draw from.

    On the device each replica gets its own: ``torch.manual_seed`` does not reach it, and without one all replicas
    would drop the same values. On the host the generators of torch, numpy and random are the process's: its
    replicas share them, so that all of them seed them alike.
    """
    torch_xla.manual_seed(stream(base, replica), device=str(device()))
    first = replica - replica % xr.addressable_device_count()
    torch.manual_seed(stream(base, first))
    np.random.seed(stream(base, first))
    random.seed(stream(base, first))


def sync() -> None:
    """Marks the step: what has been recorded on this replica is compiled (once) and executed."""
    torch_xla.sync()


def wait() -> None:
    """Returns when all executions of this process have ended."""
    xm.wait_device_ops()


def compilations() -> int:
    """Graphs that this process has compiled."""
    data = met.metric_data("CompileTime")
    return int(data[0]) if data else 0


def upload(batch: Any, target: torch.device) -> Any:
    """The same structure with its tensors on ``target``; other leaves are left as they are."""
    if isinstance(batch, torch.Tensor):
        return batch.to(target)
    if isinstance(batch, dict):
        return type(batch)((key, upload(value, target)) for key, value in batch.items())
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(upload(value, target) for value in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(upload(value, target) for value in batch)
    return batch


def download(state: Any) -> Any:
    """The same structure with its tensors copied to the CPU. Everything in it must have been executed."""
    if isinstance(state, torch.Tensor):
        return state.detach().cpu().clone() if state.device.type == "cpu" else state.detach().cpu()
    if isinstance(state, dict):
        return {key: download(value) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(download(value) for value in state)
    return state
