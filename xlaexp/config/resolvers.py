"""OmegaConf resolvers that the files in ``conf/`` use."""

import hashlib
import re
import secrets
from datetime import datetime

from omegaconf import OmegaConf

_LONGEST = 120


def register_resolvers() -> None:
    """Registers the resolvers.

    ``${unique:<pattern>}`` is the time with a few random letters: two runs that start in the same second get
    different directories. ``${job_directory:<number>,<overrides>}`` is a directory name without "/" and ",".
    """
    OmegaConf.register_new_resolver(
        "unique",
        lambda pattern: f"{datetime.now().strftime(pattern)}-{secrets.token_hex(2)}",
        use_cache=True,
        replace=True,
    )
    OmegaConf.register_new_resolver("job_directory", job_directory, replace=True)


def job_directory(number: int, overrides: str) -> str:
    """A name for a job's directory that is safe everywhere and tells jobs apart.

    Args:
        number: of the job.
        overrides: its overrides, joined.
    """
    safe = re.sub(r"[^A-Za-z0-9_.=+-]+", "-", str(overrides))
    if len(safe) > _LONGEST:
        safe = f"{safe[:_LONGEST]}-{hashlib.sha256(str(overrides).encode()).hexdigest()[:8]}"
    return f"{number}__{safe}" if safe else str(number)
