"""What a person sees of a sweep while it runs: a live table on a terminal, lines elsewhere."""

import logging
import time
from types import TracebackType
from typing import get_args

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from xlaexp.console import console
from xlaexp.sweep.ledger import Entry, Ledger, State
from xlaexp.sweep.results import label

log = logging.getLogger("xlaexp")


class Display:
    """Shows counts, and for each job that runs the last line of its log.

    Args:
        ledger: of the sweep.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
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
        log.info("job %d started%s: %s", entry.number, again, label(self._ledger.entries, entry))

    def ended(self, entry: Entry) -> None:
        """Says what became of a job."""
        seconds = (entry.ended or 0.0) - (entry.started or 0.0)
        done = sum(e.finished or e.state == "failed" for e in self._ledger.entries)
        of_all = f"{done} of {len(self._ledger.entries)} ended"
        if entry.finished:
            log.info("job %d %s: %.6g in %.1f s, %s", entry.number, entry.state, entry.objective, seconds, of_all)
        else:
            log.error("job %d failed: %s, %s", entry.number, entry.reason, of_all)

    def _render(self) -> RenderableType:
        states = [entry.state for entry in self._ledger.entries]
        head = "  ".join(f"{states.count(state)} {state}" for state in get_args(State) if state in states)
        jobs = Table.grid(padding=(0, 1), expand=True)
        jobs.add_column(no_wrap=True)
        jobs.add_column(no_wrap=True, overflow="ellipsis", max_width=console.width // 2)
        jobs.add_column(no_wrap=True, justify="right")
        jobs.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
        for entry in self._ledger.entries:
            if entry.state == "running":
                seconds = time.time() - (entry.started or time.time())
                texts = (f"job {entry.number}", label(self._ledger.entries, entry), f"{seconds:.0f} s")
                jobs.add_row(*map(Text, texts), Text(self._last_line(entry) or "starting", style="dim"))
        return Group(Text(head, style="bold"), jobs)

    def _last_line(self, entry: Entry) -> str:
        """The last thing that a job has logged."""
        for path in (self._ledger.directory / entry.directory).glob("*.log"):
            if path.name != "console.log":
                with path.open("rb") as file:
                    file.seek(max(0, path.stat().st_size - 500))
                    lines = file.read().decode(errors="replace").splitlines()
                return lines[-1].rpartition("] ")[2] if lines else ""
        return ""
