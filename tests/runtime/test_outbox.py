"""The packets of an operator part stay in a file until all parts have processed a later batch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from d3gnn.kernel.blocks import Block, BlockKind
from d3gnn.kernel.mapped_state import StateLost
from d3gnn.kernel.operators.base import BatchContext
from d3gnn.runtime import outbox as outbox_module
from d3gnn.runtime.outbox import Outbox, read_outbox
from d3gnn.runtime.packets import Inbox, Packets
from d3gnn.runtime.version import BatchVersion


def block(target: int, rows: int, value: float) -> Block:
    columns = (np.arange(rows, dtype=np.int32), np.full((rows, 4), value, np.float32))
    return Block(BlockKind.VALUES, 1, target, columns)


def delivered(packets: Packets, target: int) -> list[Block]:
    """The blocks that a part of the next operator reads."""
    rows = [bytes(packet) for to, packet in packets.for_rows() if to == target]
    return Inbox.of(rows, sources=1).blocks(read_outbox)


def values(blocks: list[Block]) -> list[float]:
    return [float(v) for found in blocks for v in found.columns[1][:, 0]]


def test_blocks_are_read_where_the_rows_point(tmp_path: Path) -> None:
    outbox, version = Outbox(tmp_path), BatchVersion(3, 8, False)
    sent = outbox.put(version, 1, 3, [block(0, 2, 5.0), block(2, 1, 6.0), block(0, 1, 7.0)])
    assert values(delivered(sent, 0)) == [5.0, 5.0, 7.0]
    assert values(delivered(sent, 1)) == []
    assert values(delivered(sent, 2)) == [6.0]
    assert max(len(packet) for _, packet in sent.for_rows()) < 500, "rows only hold the place"


def test_a_retried_batch_finds_its_earlier_packets(tmp_path: Path) -> None:
    version = BatchVersion(3, 8, False)
    sent = Outbox(tmp_path).put(version, 1, 2, [block(1, 2, 5.0)])
    again = Outbox(tmp_path).get(version)
    assert again is not None
    assert again == sent
    assert Outbox(tmp_path).get(BatchVersion(3, 10, False)) is None
    assert Outbox(tmp_path).get(BatchVersion(4, 8, False)) is None


def test_the_next_batch_keeps_the_file_and_the_one_after_overwrites_it(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    sent = [outbox.put(BatchVersion(0, b, False), 1, 1, [block(0, 1, float(b))]) for b in range(2)]
    assert [values(delivered(packets, 0)) for packets in sent] == [[0.0], [1.0]]
    third = outbox.put(BatchVersion(0, 2, False), 1, 1, [block(0, 1, 2.0)])
    assert values(delivered(sent[1], 0)) == [1.0]
    assert values(delivered(third, 0)) == [2.0]
    assert len(list(tmp_path.iterdir())) == 2


def test_a_reader_of_an_overwritten_batch_is_refused(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    first = outbox.put(BatchVersion(0, 0, False), 1, 1, [block(0, 1, 1.0)])
    rows = [bytes(packet) for _, packet in first.for_rows()]
    outbox.put(BatchVersion(0, 2, False), 1, 1, [block(0, 1, 2.0)])
    with pytest.raises(StateLost, match="batch 2 of epoch 0, but batch 0"):
        Inbox.of(rows, sources=1).blocks(read_outbox)


def test_a_reader_keeps_its_blocks_when_the_outbox_is_cleared(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    sent = outbox.put(BatchVersion(0, 0, False), 1, 1, [block(0, 3, 4.0)])
    found = delivered(sent, 0)
    outbox.clear()
    assert list(tmp_path.iterdir()) == []
    assert values(found) == [4.0] * 3


def test_the_space_of_one_large_batch_is_given_back(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    outbox.put(BatchVersion(0, 0, False), 1, 1, [block(0, 50_000, 1.0)])
    large = (tmp_path / "outbox-0-0").stat().st_size
    sent = outbox.put(BatchVersion(0, 2, False), 1, 1, [block(0, 5, 2.0)])
    assert (tmp_path / "outbox-0-0").stat().st_size < large / 100
    assert values(delivered(sent, 0)) == [2.0] * 5


def test_a_file_too_large_for_memory_is_kept_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_module, "LARGE", 10_000)
    near, far = tmp_path / "near", tmp_path / "far"
    near.mkdir()
    outbox = Outbox(near, far)
    for batch, rows in ((0, 5), (2, 500), (4, 5), (6, 500)):
        version = BatchVersion(1, batch, False)
        sent = outbox.put(version, 0, 1, [block(0, rows, float(batch))])
        is_far = sent.nbytes > 10_000
        assert is_far == (rows == 500)
        # The file of the earlier batch is in neither folder.
        assert len(list(near.glob("outbox-*"))) == (not is_far)
        assert len(list(far.glob("outbox-*"))) == is_far
        again = Outbox(near, far).get(version)
        assert again is not None
        assert bytes(again.data) == bytes(sent.data)
    outbox.clear()
    assert Outbox(near, far).get(version) is None


def test_a_refresh_drains_and_rebuilds_unless_it_is_the_first_batch() -> None:
    assert BatchVersion(2, 8, refresh=True, clock=5).context == BatchContext(5, drain=True, rebuild=True)
    assert BatchVersion(1, 0, refresh=True, clock=5).context == BatchContext(5, drain=True)
    assert BatchVersion(2, 8, refresh=False, clock=5, drain=True).context == BatchContext(5, drain=True)
    assert BatchVersion(2, 8, refresh=False, clock=5).context == BatchContext(5)
