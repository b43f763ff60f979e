"""The report of a batch, from any engine, and the totals of a run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True)
class BatchReport:
    """One finished batch."""

    number: int
    events: int
    milliseconds: float
    #: Output rows, with tombstones.
    rows: int
    tombstones: int
    late: int
    #: Dead letters by their reasons.
    dead: Counter[str]
    #: Seconds from the oldest arrival among its events to its end; None without events.
    lag: float | None
    #: Vertices with pending changes in windows after it.
    pending: int = 0
    #: Vertices after it, and those that lack a feature; 0 in a repeated batch.
    vertices: int = 0
    lacking: int = 0


@dataclass
class Totals:
    """The sum of all batches so far."""

    events: int = 0
    batches: int = 0
    rows: int = 0
    tombstones: int = 0
    late: int = 0
    dead: Counter[str] = field(default_factory=Counter)
    last: BatchReport | None = None
    #: Vertices, and those that lack a feature, after the last batch.
    vertices: int = 0
    lacking: int = 0

    def add(self, report: BatchReport) -> None:
        self.events += report.events
        self.batches += 1
        self.rows += report.rows
        self.tombstones += report.tombstones
        self.late += report.late
        self.dead += report.dead
        self.last = report
        if report.vertices:
            self.vertices, self.lacking = report.vertices, report.lacking
