"""A multirun: every job is checked before the first one starts."""

from hydra._internal.callbacks import Callbacks
from hydra._internal.hydra import Hydra
from hydra.core.plugins import Plugins
from hydra.types import HydraContext, RunMode, TaskFunction
from omegaconf import DictConfig

from xlaexp.config.compose import compose
from xlaexp.config.errors import ConfigError
from xlaexp.config.loader import as_given
from xlaexp.host import Host
from xlaexp.sweep import engine, processes
from xlaexp.sweep.precheck import check_jobs

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
    on_engine = engine.is_used(frame)
    if on_engine:
        engine.prepare(frame)
    else:
        if frame.hydra.sweeper.get("max_batch_size") is not None:
            raise ConfigError([_NO_BATCHES])
        processes.prepare(host)  # the imports take longer than the checks
    try:
        check_jobs(app, name, frame, host)
        if on_engine:
            with engine.reported(frame):
                _launch(app, name, frame, isolated)
        else:
            _launch(app, name, frame, task)
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
