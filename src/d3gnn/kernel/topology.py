"""The changes of a batch to one part of the graph, the same for every operator after Partition."""

from __future__ import annotations

from collections.abc import Iterable

from d3gnn.kernel.blocks import LAST_TOPOLOGY, Block, BlockKind, by_kind, joined

#: The attributes for the kinds up to `LAST_TOPOLOGY`, in their order.
_NAMES = [kind.name.lower() for kind in list(BlockKind)[: LAST_TOPOLOGY + 1]]


class Topology:
    """Topology, queries and labels for one part: one block of each kind, or None."""

    # Few kinds come with a small batch, so the others are None by default: setting them takes longer.
    vertices: Block | None = None
    replicas: Block | None = None
    sources: Block | None = None
    vertex_deletes: Block | None = None
    replica_deletes: Block | None = None
    edge_deletes: Block | None = None
    edge_adds: Block | None = None
    vertex_tombstones: Block | None = None
    edge_tombstones: Block | None = None
    edge_values: Block | None = None
    queries: Block | None = None
    labels: Block | None = None

    def __init__(self, blocks: list[Block]) -> None:
        #: The blocks as received, which are passed on to the next operator.
        self.blocks = blocks
        if len({block.kind for block in blocks}) == len(blocks):
            for block in blocks:
                setattr(self, _NAMES[block.kind], block)
            return
        for name, same in zip(_NAMES, by_kind(blocks), strict=False):
            if same:
                setattr(self, name, joined(same))


#: That of a part without changes.
NO_TOPOLOGY = Topology([])


def apart(blocks: Iterable[Block]) -> tuple[Topology, list[Block]]:
    """Separate topology from the other blocks."""
    topology: list[Block] = []
    rest: list[Block] = []
    for block in blocks:
        (topology if block.kind <= LAST_TOPOLOGY else rest).append(block)
    return Topology(topology), rest
