"""What a batch does to the graph in one part: the same for every operator behind Partition."""

from __future__ import annotations

from collections.abc import Iterable

from d3gnn.kernel.blocks import LAST_TOPOLOGY, Block, by_kind, joined


class Topology:
    """Topology, and queries, for one part: all that there is of each kind as one block, or None."""

    __slots__ = (
        "adds", "blocks", "drops", "edge_values", "gone", "gone_edges", "leaves", "queries", "removes",
        "replicas", "sources", "vertices",
    )  # fmt: skip

    def __init__(self, blocks: list[Block]) -> None:
        #: As they came: they ride along to the next operator.
        self.blocks = blocks
        (
            self.vertices, self.replicas, self.sources, self.drops, self.leaves, self.removes, self.adds,
            self.gone, self.gone_edges, self.edge_values, self.queries,
        ) = map(joined, by_kind(blocks)[: LAST_TOPOLOGY + 1])  # fmt: skip


def apart(blocks: Iterable[Block]) -> tuple[Topology, list[Block]]:
    """The topology among some blocks, and the rest."""
    riding: list[Block] = []
    rest: list[Block] = []
    for block in blocks:
        (riding if block.kind <= LAST_TOPOLOGY else rest).append(block)
    return Topology(riding), rest
