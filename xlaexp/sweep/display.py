"""What a person sees of a sweep while it runs: a live table on a terminal, lines elsewhere."""

import logging
import time
from collections.abc import Sequence
from types import TracebackType
from typing import get_args

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from xlaexp.console import console
from xlaexp.sweep.ledger import Entry, Ledger, State

log = logging.getLogger("xlaexp")


class Display:
    """Shows counts, and for each job that runs the last line of its log.

    Args:
        ledger: of the sweep.
        entries: the jobs of this launch.
    """

    def __init__(self, ledger: Ledger, entries: Sequence[Entry]) -> None:
        self._ledger = ledger
        self._entries = entries
        self._live = Live(get_renderable=self._render, console=console, refresh_per_second=2, transient=True)

    def __enter__(self) -> "Display":
        if console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if console.is_terminal:
            self._live.stop()

    def started(self, entry: Entry) -> None:
        """Says that a job has been started."""
        again = f" (attempt {entry.attempts})" if entry.attempts > 1 else ""
        log.info("job %d started%s: %s", entry.number, again, " ".join(entry.overrides))

    def ended(self, entry: Entry) -> None:
        """Says what became of a job."""
        seconds = (entry.ended or 0.0) - (entry.started or 0.0)
        done = sum(e.finished or e.state == "failed" for e in self._entries)
        of_all = f"{done} of {len(self._entries)} ended"
        if entry.finished:
            log.info("job %d %s: %.6g in %.1f s, %s", entry.number, entry.state, entry.objective, seconds, of_all)
        else:
            log.error("job %d failed: %s, %s", entry.number, entry.reason, of_all)

    def _render(self) -> RenderableType:
        states = [entry.state for entry in self._entries]
        head = "  ".join(f"{states.count(state)} {state}" for state in get_args(State) if state in states)
        lines = [Text(head, style="bold")]
        for entry in self._entries:
            if entry.state == "running":
                seconds = time.time() - (entry.started or time.time())
                label = f"job {entry.number} {' '.join(entry.overrides)} {seconds:.0f} s"
                lines.append(Text(f"{label}  {self._last_line(entry)}", no_wrap=True, overflow="ellipsis"))
        return Group(*lines)

    def _last_line(self, entry: Entry) -> str:
        """The last thing that a job has logged."""
        for path in (self._ledger.directory / entry.directory).glob("*.log"):
            if path.name != "console.log":
                with path.open("rb") as file:
                    file.seek(max(0, path.stat().st_size - 500))
                    lines = file.read().decode(errors="replace").splitlines()
                return lines[-1].rpartition("] ")[2] if lines else ""
        return ""
