"""What tests run inside replicas: functions that a launch can import, each leaving files to look at."""

import contextlib
import functools
import gc
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, NamedTuple
from unittest import mock

import numpy as np
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as met
from torch import nn
from torch.utils import _pytree as pytree

from xlaexp import failure, launch, replica
from xlaexp.build import build
from xlaexp.callbacks import Callback, Run, Scalars
from xlaexp.config.schema import Config
from xlaexp.console import console
from xlaexp.train.evaluate import evaluate
from xlaexp.train.loop import fit, train_epoch
from xlaexp.train.parts import Parts
from xlaexp.train.progress import ProgressBar
from xlaexp.train.readings import Readings
from xlaexp.train.state import Progress
from xlaexp.xla import lockstep, replicas, runtime
from xlaexp.xla.feed import DirectFeed, ParallelFeed


def everywhere(fn: Any, config: Config, directory: Path) -> None:
    """Runs ``fn(ordinal, config, directory)`` on every replica of a config, launched as the config says."""
    with replicas.environment(config.platform, config.replicas):
        os.environ.setdefault("PJRT_DEVICE", config.platform)
        match config.device.launch:
            case "multi":
                replicas.launch_all(fn, (config, directory))
            case "colab":
                replicas.launch_one(fn, (config, directory))
            case _:
                fn(0, config, directory)


def parts(ordinal: int, config: Config) -> Parts:
    """What a replica builds."""
    lockstep.install()
    runtime.seed(config.seed, ordinal)
    return build(config)


def train(ordinal: int, config: Config, directory: Path) -> None:
    """Trains, and leaves this replica's first and last weights."""
    built = parts(ordinal, config)
    torch.save(runtime.download(built.model.state_dict()), directory / f"first-{ordinal}.pt")
    result = fit(built, config.train, config.objective, Callback(), Readings(built, config.train.log_every, Callback()))
    torch.save(runtime.download(built.model.state_dict()), directory / f"last-{ordinal}.pt")
    leave(directory / f"result-{ordinal}.json", {"objective": result.objective, "metrics": dict(result.metrics)})


def begin_apart(ordinal: int, config: Config, directory: Path) -> None:
    """Begins the later, the greater the ordinal, and leaves the initial weights."""
    time.sleep(0.5 * ordinal)
    torch.save(runtime.download(parts(ordinal, config).model.state_dict()), directory / f"first-{ordinal}.pt")


def count(ordinal: int, config: Config, directory: Path) -> None:
    """Counts what one epoch of training costs, and an evaluation after it."""
    built = parts(ordinal, config)
    readings = Readings(built, config.train.log_every, Callback())
    runtime.wait()
    before = counters()
    train_epoch(built, config.train, Progress(), readings, Callback())
    runtime.wait()
    trained = counters()
    evaluate(built)
    runtime.wait()
    if ordinal == 0:
        leave(directory / "count.json", {"train": less(trained, before), "evaluate": less(counters(), trained)})


def count_epochs(ordinal: int, config: Config, directory: Path) -> None:
    """Counts what all epochs of training cost, without evaluations, and leaves the learning rates of their steps."""
    built = parts(ordinal, config)
    rates = Rates(built.model)
    readings = Readings(built, config.train.log_every, rates)
    before, progress = counters(), Progress()
    for epoch in range(config.train.epochs):
        progress.epoch, progress.samples = epoch, 0
        train_epoch(built, config.train, progress, readings, rates)
    runtime.wait()
    found = {"train": less(counters(), before), "logged": rates.logged, "applied": rates.applied}
    leave(directory / "count.json", found)


class Rates(Callback):
    """Notes learning rates: those that are logged, and those by which the weights have moved.

    Args:
        model: trained by SGD without momentum, by strategy sync: what is logged is the step that was executed last.
    """

    def __init__(self, model: nn.Module) -> None:
        self._weight = next(model.parameters())
        self._before = runtime.download(self._weight)
        self.logged: list[float] = []
        self.applied: list[float] = []

    def log(self, step: int, scalars: Scalars) -> None:
        self.logged.append(scalars["train/lr"])
        now, gradient = runtime.download((self._weight, self._weight.grad))
        self.applied.append(float(((self._before - now) * gradient).sum() / gradient.square().sum()))
        self._before = now


def count_with_bar(ordinal: int, config: Config, directory: Path) -> None:
    """Counts one epoch with a progress bar that is drawn."""
    built = parts(ordinal, config)
    console.is_interactive = True  # rich decided when it was imported, without the terminal of this test
    bar = ProgressBar()
    bar.start(Run({}, built.total_steps, len(built.train_loader), "val/accuracy"))
    before = counters()
    train_epoch(built, config.train, Progress(), Readings(built, config.train.log_every, bar), bar)
    bar.end(None)
    runtime.wait()
    leave(directory / "count.json", {"train": less(counters(), before)})


def counters() -> dict[str, int]:
    """Compilations, executions, host reads and step marks of this process so far."""

    def times(name: str) -> int:
        data = met.metric_data(name)
        return int(data[0]) if data else 0

    return {
        "compilations": times("CompileTime"),
        "executions": times("ExecuteTime"),
        "reads": times("TransferFromDeviceTime"),
        "marks": int(met.counter_value("MarkStep") or 0),
    }


def less(now: Mapping[str, int], then: Mapping[str, int]) -> dict[str, int]:
    """The difference of two counts."""
    return {name: now[name] - then[name] for name in now}


def leave(path: Path, content: Any) -> None:
    """Leaves JSON for the test to read."""
    path.write_text(json.dumps(content))


def early_stop(ordinal: int, config: Config, directory: Path) -> None:
    """Trains max_steps steps of a longer epoch, and leaves the weights right after it."""
    built = parts(ordinal, config)
    train_epoch(built, config.train, Progress(), Readings(built, 1000, Callback()), Callback())
    torch.save(runtime.download(built.model.state_dict()), directory / f"last-{ordinal}.pt")


def optimizer_owns_model(ordinal: int, config: Config, directory: Path) -> None:
    """Leaves whether the optimizer's parameters are the model's, and whether a step moves them."""
    built = parts(ordinal, config)
    owned = {id(p) for group in built.optimizer.param_groups for p in group["params"]}
    before = runtime.download(built.model.state_dict())
    one = replace(built, total_steps=1)
    train_epoch(one, config.train, Progress(), Readings(built, 1000, Callback()), Callback())
    after = runtime.download(built.model.state_dict())
    moved = all(not torch.equal(before[name], after[name]) for name in before)
    leave(directory / "owned.json", {"same": owned == {id(p) for p in built.model.parameters()}, "moved": moved})


def orders(ordinal: int, config: Config, directory: Path) -> None:
    """Leaves the labels (the sample numbers, with data "numbered") that two epochs hand out, and their lengths."""
    built = parts(ordinal, config)
    seen = []
    for epoch in range(2):
        built.batches.start(epoch)
        seen.append([int(n) for batch in built.strategy.batches(built.train_loader) for n in batch[1].cpu().flatten()])
    leave(directory / f"orders-{ordinal}.json", {"seen": seen, "length": len(built.train_loader)})


def draw(ordinal: int, config: Config, directory: Path) -> None:
    """Leaves random numbers of the device's stream."""
    lockstep.install()
    runtime.seed(config.seed, ordinal)
    drawn = torch.rand(8, device=runtime.device())
    runtime.sync()
    leave(directory / f"drawn-{ordinal}.json", drawn.tolist())


def threads(ordinal: int, config: Config, directory: Path) -> None:
    """Leaves how many threads there are after epochs that end, and one that is left early."""
    built = parts(ordinal, config)
    counted = []
    for epoch in range(4):
        last = replace(built, total_steps=3 if epoch == 3 else built.total_steps)
        train_epoch(last, config.train, Progress(epoch=epoch), Readings(built, 1000, Callback()), Callback())
        counted.append(threading.active_count())
    leave(directory / "threads.json", counted)


def objective(config: Config, directory: Path) -> float:
    """What a launch returns to a sweeper."""
    os.environ.setdefault("PJRT_DEVICE", config.platform)
    (directory / "environment.json").write_text("{}")
    return launch.launch(config, directory).objective


def jobs(configs: Sequence[Config], directory: Path) -> list[tuple[str, list[str]]]:
    """Launches one run after another in this process, as a sweep's worker does.

    Returns:
        For each how it has ended, and the names of the threads that it has left.
    """
    os.environ.setdefault("PJRT_DEVICE", configs[0].platform)
    before = set(threading.enumerate())
    found = []
    for number, config in enumerate(configs):
        output = directory / str(number)
        output.mkdir()
        (output / "environment.json").write_text("{}")
        try:
            ended = f"{launch.launch(config, output).epochs} epochs"
        except failure.RunFailedError as error:
            ended = failure.first_line(error)
        gc.collect()
        deadline = time.monotonic() + 5
        while (left := set(threading.enumerate()) - before) and time.monotonic() < deadline:
            time.sleep(0.01)
        found.append((ended, sorted(thread.name for thread in left)))
    return found


def before_launch(config: Config) -> bool:
    """Whether the runtime has been started by everything that comes before a launch."""
    assert replica.run.__module__ == "xlaexp.replica"
    np.random.default_rng(0)
    return runtime.is_initialized()


def first_collective(ordinal: int) -> None:
    """Records this replica's first collective, as nearly at the same moment as the others as can be."""
    lockstep.install()
    tensors = [torch.zeros(3).to(runtime.device()) + number for number in range(8)]
    with _ready_lock:
        _ready.append(ordinal)
    while len(_ready) < FIRST_COLLECTIVES:
        time.sleep(0)
    xm.all_reduce(xm.REDUCE_SUM, tensors)


FIRST_COLLECTIVES = 8
_ready: list[int] = []
_ready_lock = threading.Lock()


def first_collectives(launches: int) -> None:
    """Launches replicas again and again, to record their first collective together."""
    for _ in range(launches):
        with replicas.environment("CPU", FIRST_COLLECTIVES):
            replicas.launch_all(first_collective, ())


_COLLECTIVES = ("all_reduce", "all_gather", "all_to_all", "collective_permute", "reduce_scatter", "rendezvous")
_sequences: dict[int, IO[str]] = {}
_sequences_lock = threading.Lock()


def recorded(ordinal: int, config: Config, directory: Path) -> None:
    """Runs a replica, and leaves a line for each of its collectives and marks, in their order."""
    lockstep.install()  # before: what is asked for is recorded, not what the replicas then do together
    with _sequences_lock:
        if not _sequences:
            for name in _COLLECTIVES:
                setattr(xm, name, _noted(name, getattr(xm, name)))
            torch_xla._XLAC._xla_step_marker = _noted("mark", torch_xla._XLAC._xla_step_marker)
        _sequences[ordinal] = (directory / f"sequence-{ordinal}.txt").open("w", buffering=1)
    replica.run(ordinal, config, directory)


def recorded_apart(ordinal: int, config: Config, directory: Path) -> None:
    """:func:`recorded`, with the collective by which replicas of several processes agree whether to stop."""
    with mock.patch.object(lockstep, "agreed", return_value=None):
        recorded(ordinal, config, directory)


def _noted(name: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, which notes for the replica that calls it what it is called for."""

    @functools.wraps(fn)
    def noted(*args: Any, **kwargs: Any) -> Any:
        shapes = [
            str(list(leaf.shape)) for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)
        ]
        kind = args[:1] if name == "all_reduce" else ()
        print(name, *kind, *shapes, file=_sequences[runtime.ordinal()])
        return fn(*args, **kwargs)

    return noted


class Sample(NamedTuple):
    """A batch of many kinds."""

    image: torch.Tensor
    rest: dict[str, Any]


def structured(number: int) -> Sample:
    """A nested batch that knows its number."""
    values = torch.full((2,), float(number))
    numpy = np.full(3, number)
    return Sample(values, {"z": [values + 1, (values + 2, f"name {number}")], "a": numpy, "none": None, "int": number})


class Structured:
    """A loader of such batches; the early ones take longest to upload."""

    def __iter__(self) -> Iterator[Sample]:
        return map(structured, range(40))

    def __len__(self) -> int:
        return 40


def feeds(threads: int) -> str:
    """Compares batches of both feeds; leaves early; iterates in the middle of an iteration."""
    device = runtime.device()
    options = {
        "loader_prefetch_size": 4,
        "device_prefetch_size": 1,
        "host_to_device_transfer_threads": threads,
        "batches_per_execution": 1,
    }
    before = threading.active_count()
    parallel = ParallelFeed(device, options)
    for feed in (DirectFeed(device), parallel):
        for number, batch in enumerate(feed.batches(Structured())):
            wanted = structured(number)
            assert type(batch) is Sample
            assert list(batch.rest) == list(wanted.rest)
            assert batch.image.device.type == "xla"
            assert batch.image.tolist() == wanted.image.tolist()
            first, (second, name) = batch.rest["z"]
            assert type(batch.rest["z"]) is list
            assert type(batch.rest["z"][1]) is tuple
            assert (first.tolist(), second.tolist()) == ([number + 1.0] * 2, [number + 2.0] * 2)
            assert (name, batch.rest["none"], batch.rest["int"]) == (f"name {number}", None, number)
            assert type(batch.rest["a"]) is np.ndarray
            assert (batch.rest["a"] == number).all()
        assert number == 39
        loader = Structured()
        with closing(feed.batches(loader)) as batches:
            assert next(batches).rest["int"] == 0
            assert [batch.rest["int"] for batch in feed.batches(Structured())] == list(range(40))
            with contextlib.suppress(RuntimeError):
                next(feed.batches(loader))
                raise AssertionError("two iterations of one loader")
            assert next(batches).rest["int"] == 1
        assert [batch.rest["int"] for batch in feed.batches(loader)] == list(range(40))
    assert threading.active_count() == before
    return "well"
