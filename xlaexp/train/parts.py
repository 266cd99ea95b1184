"""What a builder assembles and a loop trains."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader

from xlaexp.train.gradients import Criterion, Gradients
from xlaexp.train.strategy import Strategy


@dataclass(frozen=True)
class Parts:
    """One replica's model, optimizer, loaders and so on, on its device."""

    device: torch.device
    replicas: int
    model: nn.Module
    criterion: Criterion
    """Returns one loss a sample."""
    optimizer: Optimizer
    scheduler: LRScheduler
    gradients: Gradients
    strategy: Strategy
    train_loader: DataLoader[Any]
    """This replica's share of the training batches."""
    set_epoch: Callable[[int], None]
    """Chooses the order of the training samples."""
    val_loader: DataLoader[Any]
    """This replica's share of the validation batches, padded and with masks."""
    train_samples: int
    """Training samples that a step of all replicas takes; the last one of an epoch may take fewer."""
    val_samples: int
    """Validation samples of all replicas."""
    total_steps: int
    """Optimizer steps of the run."""
