"""Puts a process that serves several jobs back into the state that it had before the first one."""

import gc
import logging
import multiprocessing
import os
import signal
import sys
import sysconfig
import threading
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf.basecontainer import BaseContainer

import xlaexp

_LOGGER_FIELDS = ("level", "handlers", "filters", "propagate", "disabled")
_LIBRARIES = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_OWN = (xlaexp.__name__, "hydra_plugins")
_SETTINGS: tuple[tuple[Callable[[], Any], Callable[[Any], Any]], ...] = (
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.get_default_device, lambda _: torch.set_default_device(None)),
    (torch.is_grad_enabled, torch.set_grad_enabled),
    (torch.get_num_threads, torch.set_num_threads),
    (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    (np.geterr, lambda before: np.seterr(**before)),
)


class ProcessState:
    """What a job can change in its process and a fresh process would not have: remembered, and restored.

    Random streams are not among it, because every run seeds all of them. What one job has compiled stays.
    """

    def __init__(self) -> None:
        self._environ = dict(os.environ)
        self._cwd = os.getcwd()
        lists: tuple[Any, ...] = (sys.argv, sys.path, sys.meta_path, warnings.filters)
        self._lists = [(values, list(values)) for values in lists]
        self._modules = frozenset(sys.modules)
        self._loggers = {logger: _fields(logger) for logger in _loggers()}
        self._resolvers = dict(BaseContainer._resolvers)
        self._umask = os.umask(0o022)
        os.umask(self._umask)
        self._signals = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        self._settings = [(get, set_, get()) for get, set_ in _SETTINGS]
        self._threads = frozenset(threading.enumerate())

    def restore(self, packages: Sequence[str]) -> bool:
        """Undoes what a job has changed.

        Args:
            packages: names of packages that are the user's own, wherever they are installed. They are imported
                again by the next job, as are all modules outside of the libraries, so that none finds what another
                has left in a module's variables.

        Returns:
            Whether nothing is left of the job: not if a thread or a child process of its goes on.
        """
        os.environ.clear()
        os.environ.update(self._environ)
        os.chdir(self._cwd)
        os.umask(self._umask)
        for values, before in self._lists:
            values[:] = before
        for number, handler in self._signals.items():
            signal.signal(number, handler)
        self._restore_logging()
        BaseContainer._resolvers.clear()
        BaseContainer._resolvers.update(self._resolvers)
        for name in [name for name in sys.modules if name not in self._modules and _is_users(name, packages)]:
            del sys.modules[name]
        for get, set_, before in self._settings:
            if get() != before:
                set_(before)
        # Tensors that only a cycle of references keeps alive would take part in the next job's first graph.
        gc.collect()
        return not (set(threading.enumerate()) - self._threads or multiprocessing.active_children())

    def _restore_logging(self) -> None:
        for logger in _loggers():
            before = self._loggers.get(logger)
            for handler in logger.handlers:
                if before is None or handler not in before["handlers"]:
                    handler.close()
            for field, value in (before or _fields(logging.Logger("fresh"))).items():
                setattr(logger, field, list(value) if isinstance(value, list) else value)
            logger.manager._clear_cache()  # type: ignore[attr-defined]


def _loggers() -> list[logging.Logger]:
    named = logging.Logger.manager.loggerDict.values()
    return [logging.getLogger(), *(logger for logger in named if isinstance(logger, logging.Logger))]


def _fields(logger: logging.Logger) -> dict[str, Any]:
    values = {field: getattr(logger, field) for field in _LOGGER_FIELDS}
    return {field: list(value) if isinstance(value, list) else value for field, value in values.items()}


def _is_users(name: str, packages: Sequence[str]) -> bool:
    top = name.partition(".")[0]
    if top in _OWN:
        return False
    if top in packages:
        return True
    file = getattr(sys.modules[name], "__file__", None)
    return file is not None and not any(Path(file).is_relative_to(path) for path in _LIBRARIES)
