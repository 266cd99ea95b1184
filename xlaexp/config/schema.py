"""The shape of a config. Defaults stand in ``conf/``, once; here stand types, bounds and meanings."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

Strategy = Literal["sync", "barrier", "loader"]
Mode = Literal["max", "min"]
Positive = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]

_FORBID = ConfigDict(extra="forbid")


@dataclass(frozen=True)
class Device:
    """Config group ``device``: where the replicas run and how they are launched."""

    __pydantic_config__ = _FORBID

    launch: Literal["single", "multi", "colab"]
    """single: this process. multi: torch_xla.launch, a replica a device. colab: xmp.spawn(fn, nprocs=1)."""
    replicas: Positive | None
    """Replicas on XLA:CPU; null: 2 with multi, else 1. On a TPU every chip is used."""
    timeout: Annotated[float, Field(gt=0)] | None
    """Seconds without a step after which a run is ended, with what its threads were doing; null: never."""


@dataclass(frozen=True)
class Loader:
    """What both choices of the config group ``loader`` share."""

    __pydantic_config__ = _FORBID

    batch_size: Positive
    """Samples a replica and step."""
    num_workers: Count
    """Worker processes of the DataLoader, for each replica; 0 loads in the replica itself."""
    drop_last: bool
    """Leave out the last, partial batch of a training epoch: it would cost another compilation."""
    pad_to: Positive | Annotated[tuple[Positive, ...], Field(min_length=1)] | None
    """Pad samples of different lengths: to a multiple of a number, or to the first of several lengths; null: not."""
    pad_value: float
    """What inputs are padded with; labels are padded with -100, which counts neither in a loss nor in a metric."""


@dataclass(frozen=True)
class PlainLoader(Loader):
    """``loader=plain``: the training loop moves each batch to the device."""

    name: Literal["plain"]
    """plain"""


@dataclass(frozen=True)
class MpDeviceLoader(Loader):
    """``loader=mp_device_loader``: torch_xla's MpDeviceLoader uploads ahead and marks the step."""

    name: Literal["mp_device_loader"]
    """mp_device_loader"""
    loader_prefetch_size: Positive
    """Batches that wait on the host for their upload."""
    device_prefetch_size: Positive
    """Batches that wait on the device."""
    host_to_device_transfer_threads: Positive
    """Threads that upload."""
    batches_per_execution: Positive
    """Batches between two step marks."""


AnyLoader = Annotated[PlainLoader | MpDeviceLoader, Field(discriminator="name")]


@dataclass(frozen=True)
class Train:
    """Config node ``train``: how long, and how often to look."""

    __pydantic_config__ = _FORBID

    epochs: Positive
    """Passes over the training set."""
    max_steps: Positive | None
    """Stop after this many optimizer steps, in the middle of an epoch too; null: no limit."""
    log_every: Positive
    """Steps between two readings of the training loss."""
    eval_every: Positive
    """Epochs between two evaluations; the end of training is always evaluated."""
    overfit_batches: Count
    """Train and evaluate on this many batches of the training set only; 0: all of it."""
    accumulate: Positive
    """Batches an optimizer step: their gradients are added up, weighted by their samples."""
    clip_norm: Annotated[float, Field(gt=0)] | None
    """Greatest 2-norm of all gradients together, after their reduction over replicas; null: no limit."""
    clip_value: Annotated[float, Field(gt=0)] | None
    """Greatest absolute value of each gradient, after their reduction over replicas; null: no limit."""
    ema_decay: Annotated[float, Field(gt=0, lt=1)] | None
    """Decay of an exponential moving average of the weights, which is evaluated and saved; null: none."""
    remat: bool
    """Compute the blocks of the model again in the backward pass: less memory, about a third more computation."""
    on_nonfinite: Literal["raise", "warn"]
    """What a training loss that is NaN or infinite leads to at the next reading."""


@dataclass(frozen=True)
class Checkpoint:
    """Config node ``checkpoint``: when the state of the training is saved, and which states are kept."""

    __pydantic_config__ = _FORBID

    every: Positive
    """Units between two checkpoints; the end of training is always saved."""
    unit: Literal["epoch", "step"]
    """Of ``every``."""
    keep_last: Positive
    """Newest checkpoints that are kept; the best one is kept besides."""
    metric: str | None
    """Decides which one is the best: an evaluation metric, or what training has read last; null: the objective."""
    mode: Mode | None
    """Whether more or less of it is better; null: as for the objective."""


@dataclass(frozen=True)
class ParamGroup:
    """Parameters with options of their own."""

    params: str
    """Regular expression; those whose dotted name it matches somewhere. A parameter is in the first group it fits."""
    options: Mapping[str, Any]
    """Options of the optimizer: lr, weight_decay, ..."""


ParamGroups = Literal["all", "no_decay"] | tuple[ParamGroup, ...]
"""all: every parameter alike. no_decay: no weight decay for biases and norms (parameters of one dimension)."""


@dataclass(frozen=True)
class Objective:
    """Config node ``objective``: what ``best.pt`` and a sweep are judged by."""

    __pydantic_config__ = _FORBID

    metric: str | tuple[str, ...]
    """An evaluation metric; a list of several for a sweep with several objectives. The first decides what is best."""
    mode: Mode | tuple[Mode, ...]
    """Whether more or less of it is better; as many as there are metrics."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """All metrics, the first one being what ``best.pt`` and the results are ordered by."""
        return (self.metric,) if isinstance(self.metric, str) else self.metric

    @property
    def modes(self) -> tuple[Mode, ...]:
        """For each metric whether more or less of it is better."""
        return (self.mode,) if isinstance(self.mode, str) else self.mode


@dataclass(frozen=True)
class Component:
    """A component that a config names, found in source and checked, not yet imported."""

    kind: str
    """Its config group ("model")."""
    name: str
    """The registry key or ``_target_``."""
    module: str
    """The module to import."""
    attribute: str | None
    """What to take from the module; None: what the module registers as ``name`` when it is imported."""
    args: Mapping[str, Any]
    """Keyword arguments from the config."""
    accepts: frozenset[str]
    """Every keyword that it takes; others that the builder could offer are left out."""


@dataclass(frozen=True)
class Trial:
    """What an Optuna study knows a run by."""

    storage: str
    """URL of the study's storage."""
    study: str
    """Name of the study."""
    number: int
    """Number of the trial."""
    pruner: Mapping[str, Any]
    """The pruner: ``_target_`` and its arguments."""


@dataclass(frozen=True)
class Config:
    """A whole run, resolved and checked: plain data that pickles."""

    mode: Literal["train", "eval"]
    """train, or eval: only evaluate a checkpoint."""
    seed: Count
    """Determines initial weights, sample order and every random stream."""
    strategy: Strategy
    """Who marks the step; "auto" is resolved by now."""
    platform: str
    """PJRT platform: CPU, TPU, ..."""
    device: Device
    loader: PlainLoader | MpDeviceLoader
    train: Train
    precision: Literal["fp32", "bf16"]
    """fp32, or bf16: matrix products and convolutions in bfloat16 by torch.autocast, parameters in float32."""
    param_groups: ParamGroups
    """Options of the optimizer that hold for some parameters only."""
    checkpoint: Checkpoint
    evaluated: str | None
    """In mode eval the path of a checkpoint, or of a run whose newest good one is meant; else None."""
    resume: str | None
    """auto: go on from the newest good checkpoint in the output directory, if there is one; a path: from there."""
    objective: Objective
    model: Component
    data: Component
    optimizer: Component
    criterion: Component
    scheduler: Component
    tracking: Mapping[str, Component]
    callbacks: Mapping[str, Component]
    metrics: Mapping[str, Component]
    """What an evaluation measures besides the loss; it yields ``val/<name>``."""
    plugins: tuple[str, ...]
    """Packages whose modules register a user's own components."""
    raw: Mapping[str, Any]
    """The same config as the user composed it, for the checkpoint and for TensorBoard."""
    trial: Trial | None = None
    """Set in a job of a sweep that prunes: evaluations are reported, and may end the run."""

    @property
    def replicas(self) -> int | None:
        """Replicas of this run where that is known before the launch; None on a TPU with multi."""
        if self.device.launch != "multi":
            return 1
        return self.device.replicas if self.platform == "CPU" else None
