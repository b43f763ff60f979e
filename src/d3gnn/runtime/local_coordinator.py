"""The coordinator of a host in one process: its state cannot be lost, so it rebuilds on request only."""

from __future__ import annotations

import numpy as np

from d3gnn.events import EventBatch
from d3gnn.kernel.compaction import compact
from d3gnn.kernel.log import LogEntry, MemoryLog
from d3gnn.kernel.operators import OperatorConfig, Partition
from d3gnn.kernel.operators.partition import PartitionedBatch
from d3gnn.kernel.windows.clock import Clocks
from d3gnn.runtime.coordinator import Coordinator, PlannedBatch
from d3gnn.runtime.version import BatchVersion
from d3gnn.store.erasure import without_rows
from d3gnn.store.named_ids import NamedIds

#: A shorter log is not compacted.
_SMALLEST_COMPACTED = 100_000


class LocalCoordinator(Coordinator):
    """Keeps the log in memory."""

    def __init__(self, partition: Partition, config: OperatorConfig) -> None:
        self.partition, self._config = partition, config
        self.epoch, self.clocks = 1, Clocks()
        self._log = MemoryLog()
        # Where edges expire, the log would outgrow the graph without end.
        self._compact_at = 2**62 if config.schema.ttl is None else _SMALLEST_COMPACTED

    def next_batch(self, batch: int, events: EventBatch, time: int, drain: bool) -> PlannedBatch:
        clocks = self.clocks.at(time)
        result = self.partition.process(events, clocks.batch)
        if self._config.clock == "event":  # else it would only take time: the clock of an engine is fixed
            clocks = clocks.seen(events, result.status)
        self.clocks = clocks
        self._log.append(result.entry)
        if self._log.rows > self._compact_at:
            self._compact()
        return self._planned(batch, False, drain, result)

    def rebuild(self, batch: int, events: EventBatch, time: int) -> PlannedBatch:
        """The graph in the log as one batch; `events` must be empty, since an engine logs a batch before."""
        assert not len(events)
        self.epoch += 1
        self.clocks = self.clocks.at(time)
        entry = self.snapshot()
        if entry is None:
            nothing = EventBatch.edges(np.zeros(0, np.int64), np.zeros(0, np.int64))
            result = self.partition.process(nothing, self.clocks.batch)
        else:
            self._log.replace(entry)
            result = self.partition.process(entry.events, self.clocks.batch, replay=entry.part)
        return self._planned(batch, True, True, result)

    def snapshot(self) -> LogEntry | None:
        """The shortest log of the graph; None if the graph is empty."""
        return compact(self._log.entries, self._config.schema, self._config.parts)

    def forget(self, ids: NamedIds) -> None:
        """Erase vertices from the log; `rebuild` makes the state without them."""
        entry = self.snapshot()
        if entry is not None:
            self._log.replace(without_rows(entry, ids))

    def _compact(self) -> None:
        """Replace the log by the shortest one; the next time when it has doubled, so that it costs little."""
        entry = self.snapshot()
        if entry is not None:
            self._log.replace(entry)
        self._compact_at = max(2 * self._log.rows, _SMALLEST_COMPACTED)

    def restore(self, snapshot: LogEntry | None, clocks: Clocks) -> None:
        """Take the log and the clocks of another engine; `rebuild` makes its state."""
        self.clocks = clocks
        if snapshot is not None:
            self._log.replace(snapshot)

    def _planned(self, batch: int, refresh: bool, drain: bool, result: PartitionedBatch) -> PlannedBatch:
        now = self.clocks.now(self._config.clock)
        return PlannedBatch(BatchVersion(self.epoch, batch, refresh, now, drain), self.clocks, result)
