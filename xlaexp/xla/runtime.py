"""The device, its random stream, the step boundary, and transfers."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as met
import torch_xla.runtime as xr
from torch.utils import _pytree as pytree

from xlaexp import streams

_GROUP_BYTES = 2**24
_GOLDEN = 0x9E3779B97F4A7C15  # spreads consecutive steps over all bits (Steele et al. 2014, SplitMix)


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


@cache
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
    streams.seed(stream(base, first))


def reseed(base: int, replica: int, step: int, target: torch.device) -> None:
    """Gives a step its own random stream on the device, which does not depend on what was drawn before it.

    The seed is an input of the graph, not a constant, and is uploaded only where something draws.

    Args:
        base: seed of the run.
        replica: the replica's ordinal.
        step: a number that no other step of the run has.
        target: the replica's device.
    """
    xm.set_rng_state((stream(base, replica) + step * _GOLDEN) % 2**63, str(target))


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
    return pytree.tree_map(lambda leaf: leaf.to(target) if isinstance(leaf, torch.Tensor) else leaf, batch)


def download(state: Any) -> Any:
    """The same structure with its tensors copied to the CPU. Everything in it must have been executed."""
    leaves, structure = pytree.tree_flatten(state)
    there = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor) and leaf.device.type == "xla"]
    copies: list[torch.Tensor] = []
    for group in _grouped([leaves[i].detach() for i in there]):
        # Many at once: one by one takes ten times as long. All at once takes twice their memory (torch_xla 2.9.0, CPU).
        copies += torch_xla._XLAC._xla_get_cpu_tensors(group)
    moved = dict(zip(there, copies, strict=True))
    return pytree.tree_unflatten(
        [moved.get(i, leaf.clone() if isinstance(leaf, torch.Tensor) else leaf) for i, leaf in enumerate(leaves)],
        structure,
    )


def _grouped(tensors: list[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """Consecutive tensors, in groups of limited size."""
    group: list[torch.Tensor] = []
    for tensor in tensors:
        if group and sum(each.nbytes for each in group) + tensor.nbytes > _GROUP_BYTES:
            yield group
            group = []
        group.append(tensor)
    if group:
        yield group
