"""A training loop as people write it by hand with torch_xla, for scripts/bench.py to compare with.

Prints one line of JSON: the median of the steps per second of all windows but the first.
"""

import argparse
import json
import os
import statistics
import time
from itertools import pairwise

import torch
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.runtime as xr
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from xlaexp.xla import lockstep


def train(ordinal: int, args: argparse.Namespace) -> None:
    lockstep.install()  # without it no collective between CPU replicas comes to an end
    device = torch_xla.device()
    torch.manual_seed(0)
    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))[359:]
    inputs = torch.tensor(images / 8 - 1, dtype=torch.float32)[order]
    data = TensorDataset(inputs, torch.tensor(labels)[order])
    sampler: DistributedSampler[int] = DistributedSampler(data, xr.world_size(), ordinal, drop_last=True)
    loader = DataLoader(data, args.batch_size, sampler=sampler, drop_last=True)
    widths = [64, *args.hidden]
    hidden = [part for pair in pairwise(widths) for part in (nn.Linear(*pair), nn.ReLU())]
    model = nn.Sequential(*hidden, nn.Linear(widths[-1], 10)).to(device)
    if xr.world_size() > 1:
        xm.broadcast_master_param(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    batches = pl.MpDeviceLoader(loader, device) if args.loader == "mp_device_loader" else loader
    rates = []
    step = 0
    started = time.perf_counter()
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for x, y in batches:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x.to(device)), y.to(device))
            loss.backward()  # type: ignore[no-untyped-call]
            if args.loader == "mp_device_loader":
                xm.optimizer_step(optimizer)
            elif xr.world_size() > 1:
                xm.optimizer_step(optimizer, barrier=True)
            else:
                optimizer.step()
                torch_xla.sync()
            step += 1
            if step % args.window == 0:
                if args.loader == "mp_device_loader":
                    torch_xla.sync()
                loss.item()
                now = time.perf_counter()
                rates.append(args.window / (now - started))
                started = now
    if ordinal == 0:
        print(json.dumps(statistics.median(rates[1:])), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--loader", choices=["plain", "mp_device_loader"], default="plain")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--hidden", type=lambda text: [int(width) for width in text.split(",")], default=[256])
    parser.add_argument("--window", type=int, default=220)
    args = parser.parse_args()
    os.environ["PJRT_DEVICE"] = "CPU"
    if args.replicas == 1:
        train(0, args)
    else:
        os.environ |= {
            "CPU_NUM_DEVICES": str(args.replicas),
            "PJRT_CPU_ASYNC_CLIENT": "0",
            "XLA_THREAD_POOL_SIZE": str(max(8, 4 * args.replicas)),
        }
        torch_xla.launch(train, args=(args,), start_method="fork")


if __name__ == "__main__":
    main()
