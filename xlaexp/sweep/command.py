"""A multirun: every job is checked before the first one starts."""

import os
from pathlib import Path

from hydra._internal.callbacks import Callbacks
from hydra._internal.hydra import Hydra
from hydra.core.plugins import Plugins
from hydra.types import HydraContext, RunMode, TaskFunction
from omegaconf import DictConfig, open_dict, read_write

from xlaexp.config.compose import compose
from xlaexp.config.errors import ConfigError
from xlaexp.host import Host
from xlaexp.sweep import processes, results
from xlaexp.sweep.collect import collect
from xlaexp.sweep.ledger import mode_of
from xlaexp.sweep.precheck import as_given, check_jobs

_OWN_LAUNCHERS = "hydra_plugins.xlaexp_launcher."
# After a batch with a failed job Hydra's sweeper would not begin the next one.
_NO_BATCHES = "hydra.sweeper.max_batch_size: give hydra.launcher.n_jobs=N instead, for N jobs at a time"


def sweep(app: Hydra, name: str, overrides: list[str], task: TaskFunction, isolated: TaskFunction, host: Host) -> None:
    """Checks every job of a multirun, then hands over to Hydra's sweeper.

    Args:
        app: composes.
        name: the primary config.
        overrides: from the command line.
        task: what a job runs.
        isolated: the same in a process of its own, for launchers whose processes run several jobs.
        host: the machine that is to run them.

    Raises:
        ConfigError: with every problem of every job; nothing has been started or written.
        Exception: what the sweeper raises for a job that failed, after all have ended.
    """
    frame = compose(app, name, overrides, RunMode.MULTIRUN, host)
    engine = not str(frame.hydra.launcher.get("_target_", "")).startswith(_OWN_LAUNCHERS)
    if engine:
        _fix_directory(frame)
    else:
        if frame.hydra.sweeper.get("max_batch_size") is not None:
            raise ConfigError([_NO_BATCHES])
        processes.prepare(host)  # the imports take longer than the checks
    try:
        check_jobs(app, name, frame, host)
        try:
            _launch(app, name, frame, isolated if engine else task)
        finally:
            if engine:
                _report(frame)
    finally:
        processes.abandon()


def _launch(app: Hydra, name: str, frame: DictConfig, task: TaskFunction) -> None:
    callbacks = Callbacks(frame)
    callbacks.on_multirun_start(config=frame, config_name=name)
    context = HydraContext(config_loader=app.config_loader, callbacks=callbacks)
    sweeper = Plugins.instance().instantiate_sweeper(config=frame, hydra_context=context, task_function=task)
    try:
        sweeper.sweep(arguments=as_given(frame.hydra.overrides.task))
    finally:
        # Ours keeps processes and its directory from one batch of jobs to the next; Hydra has no word for the end.
        if close := getattr(getattr(sweeper, "launcher", None), "close", None):
            close()
    callbacks.on_multirun_end(config=frame, config_name=name)


def _fix_directory(frame: DictConfig) -> None:
    """Resolves the sweep's directory once, here: workers compose again, elsewhere and later."""
    directory = os.path.abspath(str(frame.hydra.sweep.dir))
    quoted = directory.replace("\\", "\\\\").replace("'", "\\'")
    with read_write(frame.hydra), open_dict(frame.hydra):
        frame.hydra.sweep.dir = directory
        frame.hydra.overrides.hydra.append(f"hydra.sweep.dir='{quoted}'")


def _report(frame: DictConfig) -> None:
    """What our own launcher leaves and shows at the end of a sweep, from what the jobs have left."""
    directory = Path(str(frame.hydra.sweep.dir))
    if directory.is_dir():
        mode = mode_of(frame)
        ledger = collect(directory)
        results.write(ledger, mode)
        results.show(ledger, mode)
