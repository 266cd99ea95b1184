"""A sweep on an engine that is not ours: what it needs before it starts, and what it leaves in the end."""

import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hydra.errors import HydraException
from omegaconf import DictConfig, open_dict, read_write

from xlaexp.config import engines
from xlaexp.config.errors import ConfigError
from xlaexp.config.loader import as_given
from xlaexp.failure import RunFailedError
from xlaexp.sweep import results
from xlaexp.sweep.collect import collect
from xlaexp.sweep.ledger import mode_of

log = logging.getLogger("xlaexp")

_OWN_LAUNCHERS = "hydra_plugins.xlaexp_launcher."
_ENDING_S = 5.0
_POLL_S = 0.2


def is_used(frame: DictConfig) -> bool:
    """Whether a sweep runs on another engine than our own launcher."""
    return not str(frame.hydra.launcher.get("_target_", "")).startswith(_OWN_LAUNCHERS)


def prepare(frame: DictConfig) -> None:
    """Completes the config of a sweep for its engine.

    Args:
        frame: the config of the sweep; it is changed.

    Raises:
        ConfigError: the engine was given options that it does not have.
    """
    if problems := engines.refused(as_given(frame.hydra.overrides.hydra), _choice(frame)):
        raise ConfigError(problems)
    with read_write(frame.hydra), open_dict(frame.hydra):
        if _choice(frame) == "ray":
            _for_ray(frame.hydra.launcher.ray.init)
        elif _choice(frame) == "joblib":
            _for_joblib(frame.hydra.launcher)
        # Resolved once, here: workers compose again, elsewhere and later.
        directory = os.path.abspath(str(frame.hydra.sweep.dir))
        quoted = directory.replace("\\", "\\\\").replace("'", "\\'")
        frame.hydra.sweep.dir = directory
        frame.hydra.overrides.hydra.append(f"hydra.sweep.dir='{quoted}'")


@contextmanager
def reported(frame: DictConfig) -> Iterator[None]:
    """Leaves and shows in the end what our own launcher does, and says in one line why an engine broke.

    Raises:
        RunFailedError: the engine broke.
    """
    try:
        yield
    except (ConfigError, HydraException, RunFailedError):
        raise
    except Exception as error:  # a worker was killed, or there is no such cluster
        log.debug("the sweep has ended early", exc_info=error)
        reason = " ".join(str(error).split("\n")[:2]).strip()
        raise RunFailedError(
            f"{engines.GROUP}={_choice(frame)} has ended early: {type(error).__name__}: {reason}\n"
            "hydra.verbose=true shows where."
        ) from error
    finally:
        if ray := sys.modules.get("ray"):
            ray.shutdown()  # else its jobs would end after an interrupt only when there is nobody left to tell of it
        _report(frame)


def _report(frame: DictConfig) -> None:
    directory = Path(str(frame.hydra.sweep.dir))
    if not directory.is_dir():
        return
    ledger = collect(directory)
    deadline = time.monotonic() + (_ENDING_S if _choice(frame) == "ray" else 0)
    while any(entry.state == "running" for entry in ledger.entries) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
        ledger = collect(directory)
    if ledger.entries:
        results.write(ledger, mode_of(frame))
        results.show(ledger, mode_of(frame))


def _for_ray(options: DictConfig) -> None:
    """Defaults for ``ray.init``."""
    # Else the plugin gives a number, with which Ray refuses to connect to a cluster that is there already.
    options.setdefault("object_store_memory", None)
    # Of a Ray that is started for the sweep: ten processes, and lines on the terminal that say where they are.
    options.setdefault("include_dashboard", False)
    options.setdefault("logging_level", logging.WARNING)


def _for_joblib(options: DictConfig) -> None:
    """Says what a number of jobs such as -1 means here: Optuna is to ask for as many trials at a time."""
    from joblib import effective_n_jobs

    try:
        options.n_jobs = effective_n_jobs(options.n_jobs)
    except ValueError as error:
        raise ConfigError([f"hydra.launcher.n_jobs: {error}"]) from None


def _choice(frame: DictConfig) -> str:
    return str(frame.hydra.runtime.choices[engines.GROUP])
