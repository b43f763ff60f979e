"""Output of the commands: results on standard output, everything else on standard error."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

#: Seconds between updates of the screen. The working thread draws it, so that no other takes its time.
_REFRESH = 0.15


def error_console() -> Console:
    """Standard error, as it is at the time of the call."""
    return Console(stderr=True, highlight=False)


@contextmanager
def user_mistakes(*kinds: type[Exception]) -> Iterator[None]:
    """Turn errors that the user can correct into one line and exit code 2; all others are raised."""
    expected = kinds or (ValueError, OSError)
    try:
        yield
    except expected as error:
        fail(_text(error))


def fail(message: str, code: int = 2) -> NoReturn:
    """Print an error and exit."""
    line = Text("error: ", style="bold red")
    error_console().print(line.append(message, style="default"), soft_wrap=True)
    raise typer.Exit(code)


def _text(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}"
    return " ".join(str(error).split())


@contextmanager
def status(console: Console, what: str) -> Iterator[None]:
    """Show a status while the block runs; without a terminal, print it as a line."""
    if console.is_terminal:
        with console.status(what):
            yield
    else:
        console.print(what, markup=False)
        yield


def facts(cells: Sequence[tuple[str, str]]) -> Table:
    """A grid of names and values, two pairs in a row."""
    grid = Table.grid(padding=(0, 3))
    for _ in range(4):
        grid.add_column()
    for left, right in zip(cells[0::2], cells[1::2], strict=True):
        grid.add_row(f"[dim]{left[0]}", left[1], f"[dim]{right[0]}", right[1])
    return grid


def span(seconds: float) -> str:
    """A duration in a readable unit.

    >>> span(0.0123), span(2.34), span(75), span(7300), span(200_000)
    ('12 ms', '2.3 s', '1:15 min', '2:01 h', '2.3 days')
    """
    if seconds < 1:
        return f"{seconds * 1e3:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}:{rest:02d} min"
    return f"{minutes // 60}:{minutes % 60:02d} h" if minutes < 1440 else f"{seconds / 86400:.1f} days"


def print_json(result: dict[str, Any]) -> None:
    """One JSON object, on one line, on standard output."""
    sys.stdout.write(json.dumps(result, allow_nan=False) + "\n")


class Steps:
    """Progress bars on standard error, one for each step of a job."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._drawn = 0.0

    def step(self, name: str, total: int, unit: str = "events") -> Callable[[int], None]:
        """A new bar; call the returned function with the progress."""
        task: TaskID | None = None

        def report(done: int) -> None:
            nonlocal task
            if task is None:
                task = self._progress.add_task(name, total=total, unit=unit)
            now = time.monotonic()
            if done >= total or now - self._drawn >= _REFRESH:
                self._progress.update(task, completed=done)
                self._progress.refresh()
                self._drawn = now

        return report


@contextmanager
def steps() -> Iterator[Steps]:
    """Show progress bars while the block runs."""
    columns = (
        TextColumn("{task.description:<12}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[unit]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=error_console(), auto_refresh=False) as progress:
        yield Steps(progress)
