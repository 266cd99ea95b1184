"""What a job has to know of the Optuna study that it is a trial of. Nothing here imports optuna."""

from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from xlaexp.config.schema import Trial

_NONE = "optuna.pruners.NopPruner"
_SQLITE = "sqlite:///"


def trial_of(hydra: DictConfig) -> Trial | None:
    """The trial that a job is, or None where it is none, or one that nothing prunes.

    Args:
        hydra: the ``hydra`` node of the job's config.
    """
    sweeper = hydra.sweeper
    number = sweeper.get("trial")
    if number is None or sweeper.pruner.get("_target_") == _NONE:
        return None
    pruner = OmegaConf.to_container(sweeper.pruner, resolve=True)
    assert isinstance(pruner, dict)
    named = {str(key): value for key, value in pruner.items()}
    return Trial(storage_url(sweeper.storage, hydra.runtime.cwd), str(sweeper.study_name), int(number), named)


def storage_url(url: str, directory: str) -> str:
    """A storage URL that means the same in every working directory.

    Args:
        url: Optuna's, which is SQLAlchemy's.
        directory: what a relative SQLite path is relative to.
    """
    if not url.startswith(_SQLITE):
        return url
    return f"{_SQLITE}{Path(directory) / url.removeprefix(_SQLITE)}"
