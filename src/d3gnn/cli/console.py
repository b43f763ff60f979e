"""How the commands talk: results on standard output, everything else on standard error."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

#: A screen is drawn so often, in seconds, and by the thread that works: no other thread takes its time.
_REFRESH = 0.15


def error_console() -> Console:
    """Standard error as it is now."""
    return Console(stderr=True, highlight=False)


@contextmanager
def user_mistakes(*kinds: type[Exception]) -> Iterator[None]:
    """Turn what the user can put right into one line and exit code 2; anything else is ours, and loud."""
    expected = kinds or (ValueError, OSError)
    try:
        yield
    except expected as error:
        fail(_text(error))


def fail(message: str) -> None:
    """Say what was wrong and leave with exit code 2."""
    line = Text("error: ", style="bold red")
    error_console().print(line.append(message, style="default"), soft_wrap=True)
    raise typer.Exit(2)


def _text(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}"
    return " ".join(str(error).split())


def print_json(result: dict[str, Any]) -> None:
    """One JSON object, on one line, on standard output."""
    sys.stdout.write(json.dumps(result, allow_nan=False) + "\n")


class Steps:
    """Bars on standard error, one for each step of a job."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._drawn = 0.0

    def step(self, name: str, total: int, unit: str = "events") -> Callable[[int], None]:
        """A new bar; call what comes back with how much is done."""
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
    """Show progress while the block runs."""
    columns = (
        TextColumn("{task.description:<12}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[unit]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=error_console(), auto_refresh=False) as progress:
        yield Steps(progress)
