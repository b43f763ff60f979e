"""The changes of a batch to one part of the graph, the same for every operator after Partition."""

from __future__ import annotations

from collections.abc import Iterable

from d3gnn.kernel.blocks import LAST_TOPOLOGY, Block, by_kind, joined

_KINDS = int(LAST_TOPOLOGY) + 1


class Topology:
    """Topology, queries and labels for one part: one block of each kind, or None."""

    __slots__ = (
        "blocks", "edge_adds", "edge_deletes", "edge_tombstones", "edge_values", "labels", "queries",
        "replica_deletes", "replicas", "sources", "vertex_deletes", "vertex_tombstones", "vertices",
    )  # fmt: skip

    def __init__(self, blocks: list[Block]) -> None:
        #: The blocks as received, which are passed on to the next operator.
        self.blocks = blocks
        (
            self.vertices, self.replicas, self.sources, self.vertex_deletes, self.replica_deletes,
            self.edge_deletes, self.edge_adds, self.vertex_tombstones, self.edge_tombstones,
            self.edge_values, self.queries, self.labels,
        ) = [joined(same) if same else None for same in by_kind(blocks)[:_KINDS]]  # fmt: skip


#: That of a part without changes.
NO_TOPOLOGY = Topology([])


def apart(blocks: Iterable[Block]) -> tuple[Topology, list[Block]]:
    """Separate topology from the other blocks."""
    topology: list[Block] = []
    rest: list[Block] = []
    for block in blocks:
        (topology if block.kind <= LAST_TOPOLOGY else rest).append(block)
    return Topology(topology), rest
