"""The random streams of the host: the generators of torch, numpy and random, of which a process has one each.

Its replicas (threads, on a CPU) and its loader threads share them. Whoever seeds them or draws from them in a row holds
one lock; without it a replica that starts late seeds them while another one draws its initial weights.
"""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

_lock = threading.Lock()


def seed(value: int) -> None:
    """Seeds all of them."""
    with _lock:
        _seed(value)


@contextmanager
def seeded(value: int) -> Iterator[None]:
    """Seeds all of them, keeps others away, and puts back in the end what they were."""
    with _lock:
        before = torch.default_generator.get_state(), np.random.get_state(), random.getstate()
        _seed(value)
        try:
            yield
        finally:
            torch.default_generator.set_state(before[0])
            np.random.set_state(before[1])
            random.setstate(before[2])


def _seed(value: int) -> None:
    # Not torch.manual_seed: it takes a hundred times as long, because it looks for other devices.
    torch.default_generator.manual_seed(value)
    np.random.seed(value % 2**32)
    random.seed(value)
