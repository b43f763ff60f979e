"""The edges of a part while a batch passes the operators that use them.

Every Edge operator goes through the same steps: it takes the removed edges out, applies new values to the
edges that stay, and then takes the new edges in. Where operators share an adjacency, the first of them
changes it; the later ones, which find it in its final state, see it change in the same way once more. See
docs/adr/0023-one-adjacency-per-part.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from d3gnn.kernel.adjacency import Adjacency, Removed
from d3gnn.kernel.aggregators import Messages
from d3gnn.kernel.blocks import Block
from d3gnn.kernel.part_state import PartState
from d3gnn.kernel.topology import Topology

_NO_EDGES = (np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.int64))


class PartGraph(ABC):
    """The edges of a part as one operator sees them.

    Between `take_removes` and `take_adds` the lists hold exactly the edges that were there before the batch
    and stay; after `take_adds` those of the graph after the batch.
    """

    #: The lists. They move when they grow, so nothing may keep their arrays.
    adjacency: Adjacency

    @abstractmethod
    def take_removes(self, topology: Topology, reads: bool) -> Removed | None:
        """Take out the edges that a batch removes; None if it cannot remove any.

        `reads` is whether the lists are read before `take_adds`; if not, they may hold new edges meanwhile.
        """

    @abstractmethod
    def take_adds(self, adds: Block) -> Messages:
        """Take in the new edges of a batch; returns those that are kept."""


class ChangedGraph(PartGraph):
    """Changes the lists, and remembers the changes of the current batch for those that follow it."""

    def __init__(self, part_state: PartState, skips_self_loops: bool) -> None:
        self.adjacency = Adjacency(part_state)
        self._skips_self_loops = skips_self_loops
        self.removed: Removed | None = None
        self.added: Messages | None = None

    def take_removes(self, topology: Topology, reads: bool) -> Removed | None:
        edges, replicas = topology.edge_deletes, topology.replica_deletes
        self._reserve(topology)
        self.added = None
        if edges is None and replicas is None:
            self.removed = None
        else:
            self.removed = self.adjacency.remove(
                *(edges.columns if edges else _NO_EDGES), *(replicas.columns if replicas else _NO_EDGES)
            )
        return self.removed

    def _reserve(self, topology: Topology) -> None:
        """Room for the slots of replicas and edges that a batch names."""
        replicas, adds, values = topology.replicas, topology.edge_adds, topology.edge_values
        if replicas is not None or adds is not None or values is not None:
            self.adjacency.reserve(
                0 if replicas is None else replicas.extent,
                max(0 if adds is None else adds.extent, 0 if values is None else values.extent),
            )

    def take_adds(self, adds: Block) -> Messages:
        slot, src, dst, time, arrival = adds.columns
        if self._skips_self_loops and (loops := src == dst).any():
            slot, src, dst, time, arrival = (column[~loops] for column in adds.columns)
        self.adjacency.add(slot, src, dst)
        self.added = Messages(src, dst, slot, time, arrival)
        return self.added


class FollowedGraph(PartGraph):
    """Repeats what an earlier operator of the same batch did to lists that both use."""

    def __init__(self, changed: ChangedGraph) -> None:
        self.adjacency, self._changed = changed.adjacency, changed
        self._is_hidden = False

    def take_removes(self, topology: Topology, reads: bool) -> Removed | None:
        # In a batch without a change to the part, the earlier operator may not have run: what it remembers
        # is of another batch.
        added = None if topology.edge_adds is None else self._changed.added
        self._is_hidden = reads and added is not None
        if self._is_hidden:
            assert added is not None
            self.adjacency.hide(added.slot, added.src, added.dst)
        removes = topology.edge_deletes is not None or topology.replica_deletes is not None
        return self._changed.removed if removes else None

    def take_adds(self, adds: Block) -> Messages:
        added = self._changed.added
        assert added is not None, "the first operator of a batch takes the edges in"
        if self._is_hidden:
            self.adjacency.show(added.slot, added.src, added.dst)
        return added
