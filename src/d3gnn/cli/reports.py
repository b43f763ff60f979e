"""What is told of each batch, whichever engine ran it, and the sum of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True)
class BatchReport:
    """One batch that is done."""

    number: int
    events: int
    milliseconds: float
    embeddings: int
    tombstones: int
    late: int
    #: Dead letters by their reasons.
    dead: Counter[str]
    #: Seconds from the oldest arrival among its events to its end; None for a batch without events.
    lag: float | None
    #: Vertices that wait in windows after it.
    pending: int = 0


@dataclass
class Totals:
    """All batches so far."""

    events: int = 0
    batches: int = 0
    embeddings: int = 0
    tombstones: int = 0
    late: int = 0
    dead: Counter[str] = field(default_factory=Counter)
    last: BatchReport | None = None

    def add(self, report: BatchReport) -> None:
        self.events += report.events
        self.batches += 1
        self.embeddings += report.embeddings
        self.tombstones += report.tombstones
        self.late += report.late
        self.dead += report.dead
        self.last = report
