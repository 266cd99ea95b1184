"""Replica threads on XLA:CPU dispatch together, so that their collectives meet.

Out of the box every collective between CPU replicas aborts the process after 10 seconds (pytorch/xla#5005).
Each replica thread compiles a module of its own while the in-process rendezvous is keyed by module; and
buffers that are freed while an execution is in flight block their thread, in places with the GIL held. So one
replica compiles, the others hit its cache, and none goes on before all have dispatched. Measured against
torch_xla 2.9.0; ``torch_xla.sync``, ``xm.optimizer_step(barrier=True)``, ``MpDeviceLoader`` and
``xm.broadcast_master_param`` all reach the step marker through ``torch_xla._XLAC``.
"""

import functools
import threading
import time
from typing import Any

import torch_xla
import torch_xla.debug.metrics as met
import torch_xla.runtime as xr

from xlaexp import stopping, watchdog

_POLL_S = 2e-5


class Lockstep:
    """Stands in for the runtime's step marker in a process with several replica threads.

    Args:
        replicas: how many threads will meet at each mark.
        marker: the runtime's own step marker.

    Attributes:
        stop: the signal that had asked the run to stop when the replicas last met, or 0: the same for all of them
            until they meet again.
    """

    def __init__(self, replicas: int, marker: Any) -> None:
        self._marker = marker
        self._arrive = threading.Barrier(replicas, action=self._begin)
        self._leave = threading.Barrier(replicas)
        self._first_is_through = threading.Event()
        self._graphs = 0
        self._hits = 0
        self.stop = 0

    def _begin(self) -> None:
        self.stop = stopping.requested() or 0
        self._first_is_through.clear()
        self._graphs, self._hits = _graphs(), _hits()

    def __call__(self, device: str, devices: list[str], wait: bool = False, reset_scope: bool = True) -> None:
        """Marks a step on every replica at once.

        Raises:
            threading.BrokenBarrierError: another replica has failed.
        """
        watchdog.passed()
        self._arrive.wait()
        if xr.global_ordinal() == 0:
            try:
                self._marker(device, devices, wait=False, reset_scope=reset_scope)
            finally:
                self._first_is_through.set()
        else:
            while not (self._first_is_through.is_set() or _graphs() > self._graphs or _hits() > self._hits):
                time.sleep(_POLL_S)
            self._marker(device, devices, wait=False, reset_scope=reset_scope)
        self._leave.wait()
        if wait:
            torch_xla._XLAC._xla_wait_device_ops([])

    def abort(self) -> None:
        """Lets no replica wait any longer: one of them has failed."""
        self._arrive.abort()
        self._leave.abort()


def _graphs() -> int:
    return int(xr.get_num_cached_compilation_graph())


def _hits() -> int:
    return int(met.counter_value("CachedCompile") or 0)


# Each of these reads or replaces the pending all-reduce token of a device.
_COLLECTIVES = (
    "_xla_all_reduce",
    "_xla_all_reduce_inplace",
    "_xla_all_gather",
    "_xla_all_gather_out",
    "_xla_all_gather_coalesced",
    "_xla_all_gather_coalesced_out",
    "_xla_all_to_all",
    "_xla_collective_permute",
    "_xla_reduce_scatter",
    "_xla_reduce_scatter_out",
    "_xla_reduce_scatter_coalesced",
    "_xla_reduce_scatter_coalesced_out",
    "_get_all_reduce_token",
    "_set_all_reduce_token",
)


def _one_at_a_time(fn: Any, lock: threading.Lock) -> Any:
    """Lets one replica thread at a time record a collective.

    The tokens of all devices seem to be in one table that nothing guards: two replicas that record their first
    collective at the same moment crash the process (13 of 1,500 launches of 8 replicas made to do just that; 0 of
    1,500 with the lock). Nothing is executed here, so that it is held for microseconds.
    """

    @functools.wraps(fn)
    def locked(*args: Any, **kwargs: Any) -> Any:
        with lock:
            return fn(*args, **kwargs)

    return locked


_installed: Lockstep | None = None
_lock = threading.Lock()


def install() -> None:
    """Makes the replica threads of this process dispatch together; the first one to call it decides."""
    global _installed
    replicas = xr.addressable_device_count()
    with _lock:
        if _installed is None and replicas > 1 and xr.device_type() == "CPU":
            _installed = Lockstep(replicas, torch_xla._XLAC._xla_step_marker)
            torch_xla._XLAC._xla_step_marker = _installed
            recording = threading.Lock()
            for name in _COLLECTIVES:
                setattr(torch_xla._XLAC, name, _one_at_a_time(getattr(torch_xla._XLAC, name), recording))


def agreed() -> int | None:
    """The signal that had asked the run to stop at the last mark, or 0; None where replicas do not meet in here."""
    return _installed.stop if _installed is not None else None


def abort() -> None:
    """Ends every wait for other replicas in this process, now and later."""
    if _installed is not None:
        _installed.abort()
