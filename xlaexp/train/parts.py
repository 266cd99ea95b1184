"""What a builder assembles and a loop trains."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader

from xlaexp.components.data.sampling import TrainBatches
from xlaexp.train.averaging import Average
from xlaexp.train.gradients import Clipping, Forward, Gradients
from xlaexp.train.metrics import Metrics
from xlaexp.train.strategy import Strategy


@dataclass(frozen=True)
class Parts:
    """One replica's model, optimizer, loaders and so on, on its device."""

    device: torch.device
    replicas: int
    model: nn.Module
    forward: Forward
    """The model and the criterion."""
    optimizer: Optimizer
    scheduler: LRScheduler
    gradients: Gradients
    clipping: Clipping
    average: Average | None
    """Of the weights over the steps, if the config asks for it."""
    strategy: Strategy
    train_loader: DataLoader[Any]
    """This replica's share of the training batches."""
    batches: TrainBatches
    """Chooses epoch and position of what the training loader yields."""
    reseed: Callable[[int], None]
    """Gives a step its own random stream on the device; the argument is a number that no other step has."""
    val_loader: DataLoader[Any]
    """This replica's share of the validation batches, padded and with masks."""
    metrics: Metrics
    """What an evaluation measures besides the loss."""
    train_samples: int
    """Training samples that a step of all replicas takes; the last one of an epoch may take fewer."""
    val_samples: int
    """Validation samples of all replicas."""
    steps_per_epoch: int
    """Optimizer steps of a whole epoch."""
    total_steps: int
    """Optimizer steps of the run."""
