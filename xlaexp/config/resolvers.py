"""OmegaConf resolvers that the files in ``conf/`` use."""

import secrets
from datetime import datetime

from omegaconf import OmegaConf


def register_resolvers() -> None:
    """Registers ``${unique:<pattern>}``: the time, with a few random letters that no other run has.

    Two runs that start in the same second get different directories.
    """
    OmegaConf.register_new_resolver(
        "unique",
        lambda pattern: f"{datetime.now().strftime(pattern)}-{secrets.token_hex(2)}",
        use_cache=True,
        replace=True,
    )
