"""Starting replicas."""

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch_xla
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.runtime as xr
from torch_xla._internal import pjrt


def launch_all(fn: Callable[..., None], args: tuple[Any, ...]) -> None:
    """Runs ``fn(ordinal, *args)`` on every device, in child processes, through ``torch_xla.launch``.

    They are forked, because the parent has not started the runtime and a spawned child would import torch and
    torch_xla again, which takes seconds.
    """
    torch_xla.launch(fn, args=args, start_method="fork")


def launch_one(fn: Callable[..., None], args: tuple[Any, ...]) -> None:
    """Runs ``fn(0, *args)`` on one device, in this process, through ``xmp.spawn(fn, nprocs=1)``."""
    xmp.spawn(fn, nprocs=1, args=args)


def launch_threads(fn: Callable[..., None], args: tuple[Any, ...]) -> None:
    """Runs ``fn(ordinal, *args)`` on every device of this process, a thread for each; may be called again.

    This is what ``torch_xla.launch`` runs in its child process (torch_xla 2.9.0, ``pjrt.run_multiprocess``); there
    is no public name for it.
    """
    pjrt._run_thread_per_device(
        local_rank=0,
        local_world_size=1,
        fn=functools.partial(_with_ordinal, fn, args),
        initializer_fn=pjrt.initialize_multiprocess,
    )


def _with_ordinal(fn: Callable[..., None], args: tuple[Any, ...]) -> None:
    # The token of an earlier run's collectives would be an input of this run's first graphs, and make them others.
    torch_xla._XLAC._set_all_reduce_token(str(torch_xla.device()), None)
    fn(xr.global_ordinal(), *args)


@contextmanager
def environment(platform: str, replicas: int | None, without: tuple[str, ...] = ()) -> Iterator[None]:
    """Sets the variables that the runtime reads when it starts, and restores them afterwards.

    Args:
        platform: PJRT platform.
        replicas: replicas, where the platform is a CPU.
        without: variables to take out of the way.
    """
    variables: dict[str, str] = {}
    if platform == "CPU":
        count = replicas or 1
        variables = {"CPU_NUM_DEVICES": str(count)}
        if count > 1:
            # With the asynchronous client a pool worker can take another replica's task and block in it; the
            # pool needs a thread for each replica and some (measured: 8 do for 4 replicas, 32 for 8).
            variables |= {"PJRT_CPU_ASYNC_CLIENT": "0", "XLA_THREAD_POOL_SIZE": str(max(8, 4 * count))}
    saved = {name: os.environ.get(name) for name in (*variables, *without)}
    os.environ.update(variables)
    for name in without:
        os.environ.pop(name, None)
    try:
        yield
    finally:
        for name, value in saved.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
