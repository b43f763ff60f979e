"""A run as it goes on."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner

from d3gnn.cli.console import facts, span
from d3gnn.cli.reports import BatchReport, Totals
from d3gnn.sources.files import visible_files

_RECENT = 10
#: Where nobody watches a screen, a line so often, in seconds.
_LINE = 5.0
#: Folders are listed again so often at most, in seconds.
_LISTED = 2.0


class Backlog:
    """How many files were taken in, and how many are there."""

    def __init__(self, folder: Path, checkpoint: Path) -> None:
        self._folder, self._log = folder, checkpoint / "sources" / "0"
        self._looked = 0.0
        self.taken = self.there = 0

    def look(self) -> None:
        """Now, unless that was just done."""
        now = time.monotonic()
        if now - self._looked >= _LISTED:
            self.there = len(visible_files(self._folder)) if self._folder.is_dir() else 1
            self.taken = self._taken()
            self._looked = time.monotonic()

    @property
    def waiting(self) -> int:
        return max(0, self.there - self.taken)

    def _taken(self) -> int:
        """From the log of Spark's file source: a file for each batch, and some that stand for all before."""
        count = 0
        logs = [path for path in self._log.glob("[0-9]*") if path.suffix in ("", ".compact")]
        for path in sorted(logs, key=lambda path: int(path.stem), reverse=True):
            count += max(0, len(path.read_text().splitlines()) - 1)  # the first line is a version
            if path.suffix:
                break
        return count


class Display:
    """A panel on a terminal; elsewhere a line now and then."""

    def __init__(self, console: Console, title: str, backlog: Backlog) -> None:
        self._console, self._title, self._backlog = console, title, backlog
        self._live: Live | None = None
        self._begun = time.monotonic()
        self._said, self._line = "", 0.0
        self._starting = True
        self._recent: deque[BatchReport] = deque(maxlen=_RECENT)
        self._spinner = Spinner("dots")

    @contextmanager
    def shown(self) -> Iterator[None]:
        if not self._console.is_terminal:
            yield
            return
        with Live(console=self._console, auto_refresh=False, transient=True) as self._live:
            yield
        self._live = None

    def update(self, totals: Totals, new: list[BatchReport], doing: str, restarted: int) -> None:
        """What has come new, and what is being done now."""
        self._recent.extend(new)
        if self._starting and len(self._recent) > 1:
            self._recent.popleft()  # most of the first batch's time was spent on starting
            self._starting = False
        if self._live is not None:
            self._backlog.look()
            self._live.update(self._panel(totals, doing, restarted), refresh=True)
            return
        now = time.monotonic()
        if doing != self._said and not totals.batches:
            self._console.print(doing)
            self._said = doing
        elif new and now - self._line >= _LINE:
            self._backlog.look()
            cells = [f"{name} {value}" for name, value in self._cells(totals, restarted) if value]
            self._console.print(", ".join(cells), soft_wrap=True)
            self._line = now

    def _panel(self, totals: Totals, doing: str, restarted: int) -> Panel:
        self._spinner.update(text=doing)
        backlog = self._backlog
        bar = ProgressBar(total=max(1, backlog.there), completed=backlog.taken, width=60)
        body = Group(bar, "", facts(self._cells(totals, restarted)), "", self._spinner)
        return Panel(
            body, title=f"{self._title}, {span(time.monotonic() - self._begun)}", title_align="left", width=78
        )

    def _cells(self, totals: Totals, restarted: int) -> list[tuple[str, str]]:
        last, backlog = totals.last, self._backlog
        seconds = sum(report.milliseconds for report in self._recent) / 1e3
        speed = sum(report.events for report in self._recent) / max(1e-9, seconds)
        return [
            ("events", f"{totals.events:,}"),
            ("speed", f"{speed:,.0f} events/s" if last else ""),
            ("batch", f"{last.number}" if last else ""),
            ("time of it", span(last.milliseconds / 1e3) if last else ""),
            ("embeddings", f"{totals.embeddings:,}"),
            ("lag", span(last.lag) if last and last.lag is not None else ""),
            ("dead letters", f"{totals.dead.total():,}"),
            ("files waiting", f"{backlog.waiting:,} of {backlog.there:,}"),
            *([("started again", f"{restarted} times"), ("", "")] if restarted else []),
        ]
