"""Evaluation on all replicas: static shapes, every sample counted once."""

from contextlib import closing

import torch

from xlaexp import watchdog
from xlaexp.train.parts import Parts
from xlaexp.xla import collectives


def evaluate(parts: Parts) -> dict[str, float]:
    """Loss and accuracy over the whole validation set.

    The sums of losses, of hits and of samples are kept on the device, added over replicas once, and read once. The
    running statistics of normalisation layers are averaged over replicas before, and the averaged weights stand in
    for the last ones where there are any.

    Raises:
        RuntimeError: the replicas together did not see every sample once.
    """
    parts.strategy.drain()
    collectives.average_buffers(parts.model)
    if parts.average:
        with parts.average.in_place():
            return _evaluate(parts)
    return _evaluate(parts)


def _evaluate(parts: Parts) -> dict[str, float]:
    parts.model.eval()
    sums = torch.zeros(3).to(parts.device)
    batches = 0
    with torch.no_grad(), closing(parts.strategy.batches(parts.val_loader)) as loader:
        for inputs, targets, mask in loader:
            outputs, losses = parts.forward(inputs, targets)
            hits = (outputs.argmax(1) == targets).to(losses.dtype)
            sums = sums + torch.stack([(losses * mask).sum(), (hits * mask).sum(), mask.sum()])
            parts.strategy.mark()
            batches += 1
            watchdog.beat()
    parts.strategy.drain()
    parts.model.train()
    loss, hits_total, samples = collectives.all_reduce_sum(sums).tolist()
    if round(samples) != parts.val_samples:
        raise RuntimeError(
            f"the evaluation saw {round(samples)} of {parts.val_samples} samples, in {batches} of "
            f"{len(parts.val_loader)} batches"
        )
    return {"val/loss": loss / samples, "val/accuracy": hits_total / samples}
