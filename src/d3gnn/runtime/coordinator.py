"""Coordinators: which version a batch has, what time it is for windows, and when state is rebuilt."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

from d3gnn.events import EventBatch
from d3gnn.kernel.operators.partition import PartitionedBatch
from d3gnn.kernel.windows.clock import Clocks
from d3gnn.runtime.version import BatchVersion

NO_EVENTS = EventBatch.of([])


class PlannedBatch(NamedTuple):
    """A batch after Partition, ready for the operators behind it."""

    version: BatchVersion
    clocks: Clocks
    result: PartitionedBatch


class Coordinator(ABC):
    """Takes the events of a host into the log and through Partition.

    `LocalCoordinator` keeps the log in memory and rebuilds on request. `LogCoordinator` commits every batch
    to the graph log, and rebuilds also where state is missing or was built with other settings.
    """

    @abstractmethod
    def next_batch(self, batch: int, events: EventBatch, time: int, drain: bool) -> PlannedBatch:
        """The batch that follows on the state as it is, processed at this time (microseconds)."""

    @abstractmethod
    def rebuild(self, batch: int, events: EventBatch, time: int) -> PlannedBatch:
        """All batches up to this one as one, in a new epoch, over empty state."""
