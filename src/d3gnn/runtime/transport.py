"""Transports: how the blocks of one operator get to the parts of the next one.

    host        transport          what a sender hands over           what a receiver gets
    LocalEngine MemoryTransport    blocks by target part              the blocks of its part
    Spark       OutboxTransport    packets with the place in a file   an Inbox of packets
    Spark       InlineTransport    packets with the blocks            an Inbox of packets

Both packet transports have the same receiving side: every packet says where its blocks are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from d3gnn.kernel.blocks import Block, BlockKind
from d3gnn.kernel.operators.base import OperatorId
from d3gnn.runtime.outbox import Outbox, read_outbox
from d3gnn.runtime.packets import Inbox, Packets, make_packets
from d3gnn.runtime.version import BatchVersion

Sent = TypeVar("Sent")
Received = TypeVar("Received")


class Transport(ABC, Generic[Sent, Received]):
    """Moves the blocks of a batch from an operator part to the parts of the next operator."""

    @abstractmethod
    def send(self, sender: OperatorId, part: int, version: BatchVersion, blocks: Iterable[Block]) -> Sent:
        """Hand over all blocks that an operator part sends in a batch; returns what travels."""

    @abstractmethod
    def receive(self, received: Received) -> list[Block]:
        """The blocks of a batch for one part."""

    def kept(self, sender: OperatorId, part: int, version: BatchVersion) -> Sent | None:
        """What was sent in this batch, for a retry of it; None if it is not kept."""
        return None

    def clear(self, sender: OperatorId, part: int) -> None:
        """Drop everything that is kept of an operator part. Readers of it may finish."""


#: Blocks by target part, and the bytes of all of them. A plain tuple, since one is made for every operator
#: and batch.
BlocksByPart = tuple[list[list[Block]], int]


class MemoryTransport(Transport[BlocksByPart, list[Block]]):
    """Passes blocks by reference, within one process."""

    def __init__(self, parts: int) -> None:
        self._parts = parts
        # Bytes of one row of each kind, by sender: measured once, since looking at each column takes longer
        # than moving the block.
        self._row_bytes = defaultdict[OperatorId, list[int]](lambda: [0] * len(BlockKind))

    def send(
        self, sender: OperatorId, part: int, version: BatchVersion, blocks: Iterable[Block]
    ) -> BlocksByPart:
        """The blocks by target part; the lists must not be changed."""
        if not isinstance(blocks, list):
            blocks = list(blocks)
        if not blocks:
            return [[]] * self._parts, 0
        row_bytes, total = self._row_bytes[sender], 0
        by_part: list[list[Block]] = [blocks]
        if self._parts > 1:
            by_part = [[]] * self._parts  # all parts that receive nothing share one list
            for block in blocks:
                if target := by_part[block.target]:
                    target.append(block)
                else:
                    by_part[block.target] = [block]
        for block in blocks:
            kind, rows = block.kind, len(block.columns[0])
            if rows and not row_bytes[kind]:
                row_bytes[kind] = sum([column.nbytes for column in block.columns]) // rows
            total += row_bytes[kind] * rows
            if block.blob is not None:
                total += block.blob.nbytes
        return by_part, total

    def receive(self, received: list[Block]) -> list[Block]:
        """The blocks as they are."""
        return received


class PacketTransport(Transport[Packets, Inbox]):
    """The receiving side of all transports of packets."""

    def receive(self, received: Inbox) -> list[Block]:
        """The blocks in packets, as views of their bytes."""
        return received.blocks(read_outbox)


class InlineTransport(PacketTransport):
    """Packets carry the blocks: for parts on another machine, which cannot read the files of this one."""

    def __init__(self, parts: int) -> None:
        self._parts = parts

    def send(self, sender: OperatorId, part: int, version: BatchVersion, blocks: Iterable[Block]) -> Packets:
        """Packets of at most 1 MB each."""
        return make_packets(version, part, self._parts, blocks)


class OutboxTransport(PacketTransport):
    """Blocks stay in the outbox of their operator part, on the same machine; packets carry the place.

    `outbox` opens the outbox of an operator part; no packet has more than `limit` bytes.
    """

    def __init__(
        self, parts: int, outbox: Callable[[OperatorId, int], Outbox], limit: int | None = None
    ) -> None:
        self._parts, self._outbox, self._limit = parts, outbox, limit

    def send(self, sender: OperatorId, part: int, version: BatchVersion, blocks: Iterable[Block]) -> Packets:
        """One packet for each part of the next operator, or several of `limit` bytes."""
        return self._outbox(sender, part).put(version, part, self._parts, blocks, self._limit)

    def kept(self, sender: OperatorId, part: int, version: BatchVersion) -> Packets | None:
        """The packets in the outbox, if they are of this batch."""
        return self._outbox(sender, part).get(version)

    def clear(self, sender: OperatorId, part: int) -> None:
        """Empty the outbox."""
        self._outbox(sender, part).clear()
