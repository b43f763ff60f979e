"""The progress of a run."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner

from d3gnn.cli.console import facts, span
from d3gnn.cli.reports import BatchReport, Totals
from d3gnn.sources.sample import visible_files

_RECENT = 10
#: Seconds between lines where there is no terminal.
_LINE = 5.0
#: Seconds between listings of folders, at least.
_LISTED = 2.0


class Backlog:
    """The number of input files, and of those that were read.

    Spark numbers the sources of a query in the order of its plan, which is that of the inputs.
    """

    def __init__(self, paths: Sequence[Path], checkpoint: Path) -> None:
        self._paths, self._logs = paths, checkpoint / "sources"
        self._updated = 0.0
        self.read = self.total = 0

    def update(self) -> None:
        """Count again, unless that was just done."""
        now = time.monotonic()
        if now - self._updated >= _LISTED:
            self.total = sum(len(visible_files(path)) if path.is_dir() else 1 for path in self._paths)
            self.read = sum(self._read(self._logs / str(i)) for i in range(len(self._paths)))
            self._updated = time.monotonic()

    @property
    def pending(self) -> int:
        return max(0, self.total - self.read)

    def _read(self, logs: Path) -> int:
        """From the logs of a file source: one for each batch, and compacted ones for all before."""
        count = 0
        names = [path for path in logs.glob("[0-9]*") if path.suffix in ("", ".compact")]
        for path in sorted(names, key=lambda path: int(path.stem), reverse=True):
            count += max(0, len(path.read_text().splitlines()) - 1)  # the first line is a version
            if path.suffix:
                break
        return count


class Display:
    """A panel on a terminal; elsewhere a line every few seconds."""

    def __init__(self, console: Console, title: str, rows: str, backlog: Backlog) -> None:
        self._console, self._title, self._rows, self._backlog = console, title, rows, backlog
        self._live: Live | None = None
        self._begun = time.monotonic()
        self._printed, self._line = "", 0.0
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
        """Show new batches, and what the run is doing."""
        self._recent.extend(new)
        if self._starting and len(self._recent) > 1:
            self._recent.popleft()  # the first batch mostly starts workers
            self._starting = False
        if self._live is not None:
            self._backlog.update()
            self._live.update(self._panel(totals, doing, restarted), refresh=True)
            return
        now = time.monotonic()
        if doing != self._printed and not totals.batches:
            self._console.print(doing)
            self._printed = doing
        elif new and now - self._line >= _LINE:
            self._backlog.update()
            cells = [f"{name} {value}" for name, value in self._cells(totals, restarted) if value]
            self._console.print(", ".join(cells), soft_wrap=True)
            self._line = now

    def _panel(self, totals: Totals, doing: str, restarted: int) -> Panel:
        self._spinner.update(text=doing)
        backlog = self._backlog
        bar = ProgressBar(total=max(1, backlog.total), completed=backlog.read, width=60)
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
            ("batch time", span(last.milliseconds / 1e3) if last else ""),
            (f"{self._rows} written", f"{totals.rows:,}"),
            ("lag", span(last.lag) if last and last.lag is not None else ""),
            ("dead letters", f"{totals.dead.total():,}"),
            ("files unread", f"{backlog.pending:,} of {backlog.total:,}"),
            *([("lack a feature", f"{totals.lacking:,}"), ("", "")] if totals.lacking else []),
            *([("restarts", f"{restarted}"), ("", "")] if restarted else []),
        ]
