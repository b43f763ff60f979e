"""Every transport delivers the blocks of a batch to their target parts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from d3gnn.kernel.blocks import Block, BlockKind
from d3gnn.kernel.operators import OperatorId
from d3gnn.runtime.outbox import Outbox
from d3gnn.runtime.packets import Inbox, Packets
from d3gnn.runtime.transport import InlineTransport, MemoryTransport, OutboxTransport, PacketTransport
from d3gnn.runtime.version import BatchVersion

SENDER, VERSION, PARTS = OperatorId("edge", 1), BatchVersion(2, 7, False), 3


def block(target: int, value: float, rows: int = 2) -> Block:
    columns = (np.arange(rows, dtype=np.int32), np.full((rows, 4), value, np.float32))
    return Block(BlockKind.VALUES, 1, target, columns)


BLOCKS = [block(2, 1.0), block(0, 2.0), block(2, 3.0)]
EXPECTED: list[list[float]] = [[2.0], [], [1.0, 3.0]]


def values(blocks: list[Block]) -> list[float]:
    return [float(each.columns[1][0, 0]) for each in blocks]


def packet_transport(name: str, folder: Path) -> PacketTransport:
    if name == "inline":
        return InlineTransport(PARTS)
    return OutboxTransport(PARTS, lambda operator, part: Outbox(folder / f"{operator}-{part}"))


def rows(packets: Packets, target: int) -> list[bytes]:
    """The rows that Spark delivers to a part."""
    return [bytes(packet) for to, packet in packets.for_rows() if to == target]


@pytest.mark.parametrize("name", ["inline", "outbox"])
def test_packets_deliver_the_blocks_of_each_part(name: str, tmp_path: Path) -> None:
    (tmp_path / "edge-1-0").mkdir()
    transport = packet_transport(name, tmp_path)
    sent = transport.send(SENDER, 0, VERSION, BLOCKS)
    inboxes = [Inbox.of(rows(sent, part), sources=1) for part in range(PARTS)]
    assert {inbox.version for inbox in inboxes} == {VERSION}
    assert [values(transport.receive(inbox)) for inbox in inboxes] == EXPECTED


def test_memory_delivers_the_blocks_of_each_part_and_counts_bytes() -> None:
    transport = MemoryTransport(PARTS)
    for _ in range(2):
        sent, nbytes = transport.send(SENDER, 0, VERSION, BLOCKS)
        assert [values(transport.receive(part)) for part in sent] == EXPECTED
        assert nbytes == sum(column.nbytes for each in BLOCKS for column in each.columns)
    assert transport.receive(sent[0])[0] is BLOCKS[1]


def test_only_an_outbox_keeps_what_was_sent(tmp_path: Path) -> None:
    (tmp_path / "edge-1-0").mkdir()
    inline, outbox = (packet_transport(name, tmp_path) for name in ("inline", "outbox"))
    for transport in (inline, outbox):
        transport.send(SENDER, 0, VERSION, BLOCKS)
    assert inline.kept(SENDER, 0, VERSION) is None
    kept = outbox.kept(SENDER, 0, VERSION)
    assert kept is not None
    assert values(outbox.receive(Inbox.of(rows(kept, 2), sources=1))) == EXPECTED[2]
    outbox.clear(SENDER, 0)
    assert outbox.kept(SENDER, 0, VERSION) is None
