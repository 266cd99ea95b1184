"""Evaluation on all replicas: static shapes, every sample counted once."""

from collections import deque
from collections.abc import Mapping
from contextlib import closing
from typing import Any

import torch

from xlaexp import watchdog
from xlaexp.train.parts import Parts
from xlaexp.xla import collectives, runtime


def evaluate(parts: Parts) -> dict[str, float]:
    """Loss and metrics over the whole validation set, as ``val/<name>``.

    The running statistics of normalisation layers are averaged over replicas before, and the averaged weights stand in
    for the last ones where there are any.

    Raises:
        RuntimeError: the replicas together did not see every sample once.
        MetricError: a metric raised, or gave no number.
    """
    parts.strategy.drain()
    collectives.average_buffers(parts.model)
    if parts.average:
        with parts.average.in_place():
            return measure(parts)
    return measure(parts)


def load_weights(parts: Parts, content: Mapping[str, Any]) -> None:
    """Gives the model what an evaluation of the training would have used: averaged weights where there are any.

    All replicas have to call it.

    Args:
        parts: with the model on the device.
        content: of a checkpoint.

    Raises:
        RuntimeError, KeyError: it is the state of another model.
    """
    state = dict(content["model"])
    for name, rows in content["buffers"].items():
        if all(torch.equal(row, rows[0]) for row in rows):  # as after an evaluation; the mean of them may be rounded
            state[name] = rows[0]
    parts.model.load_state_dict(state)
    if "average" in content:
        with torch.no_grad():
            for name, parameter in parts.model.named_parameters():
                parameter.copy_(content["average"][name])
    runtime.sync()


def measure(parts: Parts) -> dict[str, float]:
    """:func:`evaluate` with weights and buffers as they are.

    The sums of losses, of the metrics that have a value a sample, and of samples are kept on the device, added over
    replicas once, and read once. Only where there are other metrics, outputs and targets are downloaded batch by batch.
    """
    metrics, strategy = parts.metrics, parts.strategy
    parts.model.eval()
    metrics.start()
    sums = torch.zeros(2 + len(metrics.summed)).to(parts.device)
    batches = 0
    waiting: deque[Any] = deque()  # for what computes them to be executed
    with torch.no_grad(), closing(strategy.batches(parts.val_loader)) as loader:
        for inputs, targets, mask in loader:
            while len(waiting) > strategy.pending():
                metrics.update(*runtime.download(waiting.popleft()))
            outputs, losses = parts.forward(inputs, targets)
            values = [losses, *metrics.values(outputs, targets, len(losses))]
            # Not multiplied by the mask: padding may be infinite.
            sums = sums + torch.stack([*(torch.where(mask > 0, v, 0.0).sum() for v in values), mask.sum()])
            if metrics.on_host:
                waiting.append((outputs, targets, mask))
            strategy.mark()
            batches += 1
            watchdog.beat()
    strategy.drain()
    parts.model.train()
    while waiting:
        metrics.update(*runtime.download(waiting.popleft()))
    *totals, samples = collectives.all_reduce_sum(sums).tolist()
    if round(samples) != parts.val_samples:
        raise RuntimeError(
            f"the evaluation saw {round(samples)} of {parts.val_samples} samples, in {batches} of "
            f"{len(parts.val_loader)} batches"
        )
    found = {name: total / samples for name, total in zip(("loss", *metrics.summed), totals, strict=True)}
    if metrics.on_host:
        found |= metrics.compute()
    return {"val/loss": found.pop("loss"), **{f"val/{name}": found[name] for name in metrics.names}}
