"""A run that is asked to stop: by Ctrl-C, or because its machine is taken away (SIGTERM)."""

import signal

SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""What asks a run to stop at the next step boundary."""

_requested: list[int] = []


class StoppedError(Exception):
    """A run has stopped because it was asked to; its checkpoint has been written.

    Args:
        signum: the signal that asked.
        step: optimizer steps that it had taken.
    """

    def __init__(self, signum: int, step: int) -> None:
        super().__init__(signum, step)
        self.signum, self.step = signum, step

    @property
    def code(self) -> int:
        """Exit code of the process, as shells have it."""
        return 128 + self.signum

    def __str__(self) -> str:
        return f"stopped by {signal.Signals(self.signum).name} after step {self.step}"


def request(signum: int) -> None:
    """Asks the run of this process to stop."""
    _requested.append(signum)


def requested() -> int | None:
    """The first signal that has asked for it, or None."""
    return _requested[0] if _requested else None


def clear() -> None:
    """Forgets what was asked of an earlier run."""
    _requested.clear()
