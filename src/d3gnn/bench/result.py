"""The base class of benchmark results, and the types of progress callbacks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, ClassVar

from d3gnn.bench.machine import machine

#: Progress callback: called with the amount of work done so far, in the unit of the benchmark.
OnProgress = Callable[[int], None]
#: Returns a context manager for the named step of a benchmark, for example a spinner on a terminal.
StepContext = Callable[[str], AbstractContextManager[None]]


def no_progress(done: int) -> None:
    """Ignore progress."""


@dataclass(frozen=True)
class BenchResult:
    """The name, settings and measurements of one benchmark run."""

    bench: ClassVar[str]
    settings: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """A dictionary of plain values, ready for JSON.

        The keys are `bench`, `version`, `measured_at`, `machine`, `settings`, and one for each measured
        field.
        """
        from d3gnn import __version__

        measured = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "settings"}
        return {
            "bench": self.bench,
            "version": __version__,
            "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": machine(),
            "settings": self.settings,
            **measured,
        }
