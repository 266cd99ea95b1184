"""What replicas do together, and the optimizer step that includes it."""

import numpy as np
import torch
import torch_xla.core.xla_model as xm
from torch import nn

from xlaexp import stopping
from xlaexp.xla import lockstep, runtime


def broadcast(model: nn.Module) -> None:
    """Gives every replica the parameters and buffers of replica 0, and marks a step."""
    if runtime.world_size() > 1:
        xm.broadcast_master_param(model)


def all_reduce_sum(tensor: torch.Tensor) -> torch.Tensor:
    """The sum of ``tensor`` over replicas, executed; one mark where there are several.

    Args:
        tensor: on the device, executed already.
    """
    if runtime.world_size() == 1:
        return tensor
    # A list is reduced in place by a binding that CPU replicas take turns in (lockstep.py); a single tensor would
    # go through torch's dispatcher, past it.
    reduced = tensor.clone()
    xm.all_reduce(xm.REDUCE_SUM, [reduced])
    runtime.sync()
    return reduced


def any_replica(flag: bool, device: torch.device) -> bool:
    """Whether ``flag`` is set on at least one replica; the same answer on all. One mark where there are several."""
    if runtime.world_size() == 1:
        return flag
    return bool(all_reduce_max(float(flag), device))


def gather(values: torch.Tensor) -> torch.Tensor:
    """Every replica's values, exactly, executed.

    Args:
        values: shape (n,), on the device, executed already.

    Returns:
        Shape (replicas, n): row ``i`` is replica ``i``'s.
    """
    if runtime.world_size() == 1:
        return values[None]
    mask = torch.zeros(runtime.world_size(), 1)
    mask[runtime.ordinal()] = 1
    # Uploaded: as a constant it would make each replica's graph another one. The others add zeros: that is exact.
    return all_reduce_sum(torch.where(mask.to(values.device) > 0, values[None], 0))


_CHUNK, _HEADER = 4096, 8


def exchange(payload: bytes) -> list[bytes]:
    """Every replica's bytes, by ordinal.

    ``xm.rendezvous`` reads sizes whose collective is still pending, and compiles a graph for each size.

    Args:
        payload: this replica's; may be of any length.
    """
    if runtime.world_size() == 1:
        return [payload]
    device = runtime.device()
    # In chunks: float32, in which the greatest is found, counts exactly as far as 2**24. In powers of two of them: a
    # graph for each order of magnitude.
    chunks = int(all_reduce_max(float(-(-(len(payload) + _HEADER) // _CHUNK)), device))
    padded = np.zeros(_CHUNK << (chunks - 1).bit_length(), np.uint8)
    padded[:_HEADER] = np.frombuffer(len(payload).to_bytes(_HEADER, "little"), np.uint8)
    padded[_HEADER : _HEADER + len(payload)] = np.frombuffer(payload, np.uint8)
    rows = gather(torch.from_numpy(padded.view(np.int32)).to(device)).cpu().numpy().view(np.uint8)
    sizes = [int.from_bytes(row[:_HEADER].tobytes(), "little") for row in rows]
    return [row[_HEADER : _HEADER + size].tobytes() for row, size in zip(rows, sizes, strict=True)]


def average_buffers(model: nn.Module) -> None:
    """Gives every replica the mean over replicas of each floating-point buffer (BatchNorm's running statistics)."""
    buffers = [buffer for buffer in model.buffers() if buffer.is_floating_point()]
    if buffers and runtime.world_size() > 1:
        xm.all_reduce(xm.REDUCE_SUM, buffers, scale=1.0 / runtime.world_size())
        runtime.sync()


def stop_requested(device: torch.device, may_ask: bool) -> int | None:
    """The signal that asks the run to stop, in the same step on every replica; None as long as there is none.

    Replicas that are threads of one process agree at every mark, without a collective. Those of several processes
    agree when ``may_ask`` is true, which has to be in the same steps on all of them.

    Args:
        device: the replica's.
        may_ask: whether a collective of its own is worth it in this step.
    """
    if runtime.world_size() == 1:
        return stopping.requested()
    if (agreed := lockstep.agreed()) is not None:
        return agreed or None
    if not may_ask:
        return None
    found = all_reduce_max(float(stopping.requested() or 0), device)
    return int(found) or None


def all_reduce_max(value: float, device: torch.device) -> float:
    """The greatest of all replicas' values."""
    values = torch.tensor([value]).to(device)
    xm.all_reduce(xm.REDUCE_MAX, [values])
    runtime.sync()
    return float(values.item())


def optimizer_step(optimizer: torch.optim.Optimizer, barrier: bool) -> None:
    """Averages the gradients over replicas, steps the optimizer, and with ``barrier`` marks the step."""
    xm.optimizer_step(optimizer, barrier=barrier)
