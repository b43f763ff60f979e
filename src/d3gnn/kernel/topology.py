"""What a batch does to the graph in one part: the same for every operator behind Partition."""

from __future__ import annotations

from collections.abc import Iterable

from d3gnn.kernel.blocks import LAST_TOPOLOGY, Block, Kind, by_kind, joined


class Topology:
    """Blocks of topology, and queries, for one part."""

    __slots__ = ("_found", "blocks")

    def __init__(self, blocks: list[Block]) -> None:
        #: As they came: they ride along to the next operator.
        self.blocks = blocks
        self._found = by_kind(blocks)

    def of(self, kind: Kind) -> Block | None:
        """All that there is of a kind, as one block; None if there is nothing."""
        same = self._found[kind]
        if not same:
            return None
        if len(same) > 1:
            whole = joined(same)
            assert whole is not None
            same = self._found[kind] = [whole]
        return same[0]


def apart(blocks: Iterable[Block]) -> tuple[Topology, list[Block]]:
    """The topology among some blocks, and the rest."""
    riding: list[Block] = []
    rest: list[Block] = []
    for block in blocks:
        (riding if block.kind <= LAST_TOPOLOGY else rest).append(block)
    return Topology(riding), rest
