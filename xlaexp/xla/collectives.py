"""What replicas do together, and the optimizer step that includes it."""

import torch
import torch_xla.core.xla_model as xm
from torch import nn

from xlaexp.xla import runtime


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
    return bool(all_reduce_sum(torch.tensor([float(flag)]).to(device)).item())


def optimizer_step(optimizer: torch.optim.Optimizer, barrier: bool) -> None:
    """Averages the gradients over replicas, steps the optimizer, and with ``barrier`` marks the step."""
    xm.optimizer_step(optimizer, barrier=barrier)
