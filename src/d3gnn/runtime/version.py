"""The version of a batch, which every operator part stamps on its state."""

from __future__ import annotations

from typing import NamedTuple

from d3gnn.kernel.operators.base import BatchContext


class BatchVersion(NamedTuple):
    """Which batch this is, and in which epoch; what is the same in every replay of it."""

    #: Goes up with every rebuild of the state.
    epoch: int
    batch: int
    #: Whether the batch is a refresh: all state is rebuilt from the graph log.
    refresh: bool
    #: The time that windows use, in microseconds.
    clock: int = 0
    #: Whether windows emit everything that is pending.
    drain: bool = False
    #: The version of the model that computes it; 0 where a host has only one.
    model: int = 0

    @property
    def context(self) -> BatchContext:
        """What operators need to know of it."""
        # Before the first batch nothing was emitted that a rebuild would have to repeat.
        return BatchContext(self.clock, self.drain or self.refresh, self.refresh and self.batch > 0)
