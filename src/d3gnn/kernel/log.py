"""The graph log: entries hold the applied events of each batch. Here in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from d3gnn.events import EventBatch
from d3gnn.types import Ints, Ints32

#: Small entries are joined when there are this many, so that memory and replay stay cheap.
_MAX_RECENT = 256


@dataclass(slots=True)
class LogEntry:
    """The events of a batch that changed the graph, in the order in which they were applied."""

    events: EventBatch
    #: The part that each event chose, or -1.
    part: Ints32
    #: Replaces the arrival column of the events, if given.
    arrival: Ints | None = None

    def __len__(self) -> int:
        return len(self.part)

    @staticmethod
    def concat(entries: Sequence[LogEntry]) -> LogEntry:
        """One entry from several, in order."""
        arrivals = [e.events.arrival if e.arrival is None else e.arrival for e in entries]
        given = [arrival for arrival in arrivals if arrival is not None]
        all_given = np.concatenate(given) if len(given) == len(entries) else None
        events = EventBatch.concat([entry.events for entry in entries], arrival=all_given)
        return LogEntry(events, np.concatenate([entry.part for entry in entries]))


class MemoryLog:
    """A log in memory."""

    def __init__(self) -> None:
        self._entries: list[LogEntry] = []
        self._recent: list[LogEntry] = []
        #: Number of events.
        self.rows = 0

    def append(self, entry: LogEntry) -> None:
        if not len(entry):
            return
        self._recent.append(entry)
        self.rows += len(entry)
        if len(self._recent) >= _MAX_RECENT:
            self._entries.append(LogEntry.concat(self._recent))
            self._recent = []

    @property
    def entries(self) -> list[LogEntry]:
        """All entries in order; several batches may share one."""
        return self._entries + self._recent

    def replace(self, entry: LogEntry) -> None:
        """Replace the whole log by one entry."""
        self._entries, self._recent, self.rows = [entry], [], len(entry)
