"""The log of a graph as one batch of Partition, for a rebuild."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import numpy as np

from d3gnn.events import Element, EventBatch
from d3gnn.kernel.compaction import compacted
from d3gnn.kernel.log import LogEntry
from d3gnn.kernel.operators import Partition
from d3gnn.kernel.operators.decisions import Adds
from d3gnn.kernel.operators.partition import PartitionedBatch

#: An entry without events.
_NOTHING = LogEntry(EventBatch.of([]), np.zeros(0, np.int32))


class WholeGraph:
    """Entries of a log, which an empty Partition processes as one batch."""

    def __init__(self, entries: Iterable[LogEntry], partition: Partition) -> None:
        entries = [entry for entry in entries if len(entry)]
        self.entry = LogEntry.concat(entries) if entries else _NOTHING
        self._partition = partition
        self._result = self._process(self.entry)

    @cached_property
    def snapshot(self) -> LogEntry:
        """The shortest log of the graph. Look at it before Partition processes anything else."""
        return compacted(self.entry, self._partition, self._result) if len(self.entry) else _NOTHING

    def send(self) -> PartitionedBatch:
        """The result of the batch: what is in the graph, and nothing of what is gone.

        That takes another pass, over the snapshot, only if the log has created what is gone.
        """
        if self._has_history():
            self._partition.reset()
            self._result = self._process(self.snapshot)
        return self._result

    def _has_history(self) -> bool:
        partition = self._partition
        vertices, _ = partition.created
        edges = int(np.count_nonzero(self.snapshot.events.element == Element.EDGE))
        return (
            partition.schema.expiry is not None  # a snapshot may have an edge twice
            or vertices > partition.vertex_count
            or len(self._result.decisions.of(Adds).event) > edges
        )

    def _process(self, entry: LogEntry) -> PartitionedBatch:
        return self._partition.process(entry.events, 0, replay=entry.part if len(entry) else None)
