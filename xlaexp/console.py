"""The terminal: one console that log lines, the progress bar and tables share, and which replica speaks."""

import logging
import threading

from rich.console import Console
from rich.text import Text

console = Console(highlight=False)
_replica = threading.local()

_STYLES = {logging.WARNING: "yellow", logging.ERROR: "red", logging.CRITICAL: "bold red"}

PROGRESS = {"progress": True}
"""``extra=`` of log lines that an interactive terminal leaves out, because the progress bar says the same."""

ANY_REPLICA = {"any_replica": True}
"""``extra=`` of log lines that one replica alone has to say, whichever it is."""


class ConsoleHandler(logging.Handler):
    """Prints log lines above the progress bar; warnings and errors are coloured on a terminal."""

    def emit(self, record: logging.LogRecord) -> None:
        """Prints one record."""
        if console.is_terminal and getattr(record, "progress", False):
            return
        try:
            console.print(Text(self.format(record), style=_STYLES.get(record.levelno, "")), soft_wrap=True)
        except Exception:
            self.handleError(record)


class ReplicaFilter(logging.Filter):
    """Lets through what replica 0 says; of the others warnings, errors and ``ANY_REPLICA``, with their ordinal."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is to be written."""
        ordinal: int = getattr(_replica, "ordinal", 0)
        if ordinal and record.levelno < logging.WARNING and not getattr(record, "any_replica", False):
            return False
        if ordinal and not getattr(record, "replica", None):
            record.replica = ordinal
            record.msg = f"[replica {ordinal}] {record.msg}"
        return True


def speak_as(ordinal: int) -> None:
    """Says which replica the calling thread is, and installs the filter on the root logger's handlers."""
    _replica.ordinal = ordinal
    for handler in logging.getLogger().handlers:
        if not any(isinstance(f, ReplicaFilter) for f in handler.filters):
            handler.addFilter(ReplicaFilter())
