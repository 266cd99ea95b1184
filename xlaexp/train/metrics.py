"""The metrics of an evaluation: sums on the device, states and samples on the host.

Three kinds, all of them exact over replicas, and blind to padding:

- ``per_sample`` is true: one value a sample, summed on the device in the graph of the evaluation;
- torchmetrics: updated batch by batch on the CPU; the states of all replicas are merged as each state says;
- any other callable, or object with ``update`` and ``compute``: called once, with all samples in their order.

What is computed on the host is computed by replica 0 alone, so that all replicas go on with the same numbers.
"""

import copy
import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from xlaexp.train import merging
from xlaexp.train.gradients import mean_of_each
from xlaexp.xla import collectives, runtime


class MetricError(Exception):
    """A metric raised, or returned what is no number; the message names it."""


class Metrics:
    """What an evaluation measures besides the loss.

    Args:
        metrics: by name.

    Attributes:
        names: of all, in their order.
        summed: names of those that are summed on the device.
        on_host: whether there are others, for which outputs and targets have to be downloaded.
    """

    def __init__(self, metrics: Mapping[str, Any]) -> None:
        self._metrics = dict(metrics)
        self.names = tuple(metrics)
        self.summed = tuple(name for name, m in metrics.items() if getattr(getattr(m, "func", m), "per_sample", False))
        self._stateful = [name for name, m in metrics.items() if hasattr(m, "_reductions") and name not in self.summed]
        self._whole = [name for name in metrics if name not in {*self.summed, *self._stateful}]
        self.on_host = bool(self._stateful or self._whole)
        self._seen: list[Any] = []

    def values(self, outputs: Any, targets: Any, samples: int) -> list[torch.Tensor]:
        """For each metric that is summed on the device its values of shape (samples,).

        Args:
            outputs: of the model, on the device.
            targets: on the device.
            samples: batch size.

        Raises:
            MetricError: a metric raised, or returned something else.
        """
        found = []
        for name in self.summed:
            with _named(name):
                values = self._metrics[name](outputs, targets)
                if not isinstance(values, torch.Tensor) or values.ndim == 0 or len(values) != samples:
                    shape = tuple(values.shape) if isinstance(values, torch.Tensor) else type(values).__name__
                    raise ValueError(f"per_sample metrics return one value a sample ({samples}), it returned {shape}")
            found.append(mean_of_each(values.to(torch.float32), targets))
        return found

    def start(self) -> None:
        """Forgets the evaluation before."""
        self._seen = []
        for name in self._stateful:
            self._metrics[name].reset()

    def update(self, outputs: Any, targets: Any, mask: torch.Tensor) -> None:
        """Takes a batch, for the metrics on the host.

        Args:
            outputs: of the model; tensors on the CPU whose first dimension is the batch.
            targets: likewise.
            mask: shape (batch,), 1 for a sample and 0 for padding; on the CPU.

        Raises:
            MetricError: a metric raised.
        """
        kept = mask > 0
        if not kept.any():
            return

        def real(leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor) or leaf.ndim == 0 or len(leaf) != len(kept):
                return leaf
            # numpy has no bfloat16, and few metrics compute in it.
            return (leaf.float() if leaf.dtype is torch.bfloat16 else leaf)[kept]

        batch = pytree.tree_map(real, (outputs, targets))
        for name in self._stateful:
            with _named(name):
                self._metrics[name].update(*batch)
        if self._whole:
            self._seen.append(batch)

    def compute(self) -> dict[str, float]:
        """The metrics that are computed on the host, by name. All replicas have to call it.

        Raises:
            MetricError: a metric raised, or returned no number.
        """
        own = {name: merging.states(self._metrics[name]) for name in self._stateful}
        with _named(", ".join(self._whole)):
            shares = [(own, _joined(self._seen) if self._seen else None)]
        if runtime.world_size() > 1:
            shares = [pickle.loads(share) for share in collectives.exchange(pickle.dumps(shares[0], protocol=5))]
        found = self._computed(shares) if runtime.ordinal() == 0 else {}
        self.start()  # what has been seen is not needed any more
        if runtime.world_size() > 1:
            found = pickle.loads(collectives.exchange(pickle.dumps(found))[0])
        return found

    def _computed(self, shares: Sequence[tuple[dict[str, list[merging.State]], Any]]) -> dict[str, float]:
        found = {}
        for name in self._stateful:
            metric = self._metrics[name]
            with _named(name), merging.merged(metric, [states[name] for states, _ in shares]):
                found[name] = _number(metric.compute())
        if self._whole:
            outputs, targets = _in_order([samples for _, samples in shares if samples is not None])
            for name in self._whole:
                with _named(name):
                    found[name] = _called(self._metrics[name], outputs, targets)
        return found


@contextmanager
def _named(name: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise MetricError(f"metrics.{name}: {type(error).__name__}: {error}") from error


def _joined(batches: Sequence[Any]) -> Any:
    shapes = {tuple(leaf.shape[1:] for leaf in pytree.tree_leaves(batch) if _has_samples(leaf)) for batch in batches}
    if len(shapes) > 1:
        raise ValueError(
            "it is computed of all samples together, and they differ in shape; use loader.pad_to=[<length>]"
        )
    return pytree.tree_map(lambda *leaves: torch.cat(leaves) if _has_samples(leaves[0]) else leaves[0], *batches)


def _has_samples(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.ndim > 0


def _in_order(shares: Sequence[Any]) -> Any:
    """All samples in the order of the data set; replica ``i`` of ``n`` has had every ``n``-th one from ``i`` on."""

    def interleaved(*leaves: Any) -> Any:
        if not _has_samples(leaves[0]):
            return leaves[0]
        whole = leaves[0].new_empty((sum(map(len, leaves)), *leaves[0].shape[1:]))
        for first, leaf in enumerate(leaves):
            whole[first :: len(leaves)] = leaf
        return whole

    return pytree.tree_map(interleaved, *shares) if len(shares) > 1 else shares[0]


def _called(metric: Any, outputs: Any, targets: Any) -> float:
    if not (hasattr(metric, "update") and hasattr(metric, "compute")):
        leaves = [leaf for leaf in pytree.tree_leaves((targets, outputs)) if _has_samples(leaf)]
        return _number(metric(outputs, targets), len(leaves[0]))
    fresh = copy.deepcopy(metric)  # whether or not it can be reset
    fresh.update(outputs, targets)
    return _number(fresh.compute())


def _number(value: Any, samples: int = 1) -> float:
    """A float from a number of Python, numpy or torch; the mean where it is one value a sample.

    Raises:
        TypeError: it is something else.
    """
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().to(torch.float64).numpy()
    try:
        values = np.asarray(value if value is not None else "None", dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"it has to give a number, not {type(value).__name__}") from None
    if values.size == 1:
        return float(values.item())
    if values.ndim and len(values) == samples:
        return float(values.mean())
    raise TypeError(f"it has to give a number, not an array of shape {values.shape}; average its values")
