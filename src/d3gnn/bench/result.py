"""What every benchmark hands back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, ClassVar

from d3gnn.bench.machine import machine

#: Called now and then with how much is done, in the unit that the benchmark counts in.
Report = Callable[[int], None]
#: Wraps a step of a benchmark, by name: to show progress.
Around = Callable[[str], AbstractContextManager[None]]


def silent(done: int) -> None:
    """Report to nobody."""


@dataclass(frozen=True)
class BenchResult:
    """A benchmark's name and settings, and what it measured."""

    bench: ClassVar[str]
    settings: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON: `bench`, `version`, `made` (when), `machine`, `settings`, and each measured
        field at the top.
        """
        from d3gnn import __version__

        measured = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "settings"}
        return {
            "bench": self.bench,
            "version": __version__,
            "made": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": machine(),
            "settings": self.settings,
            **measured,
        }
