"""What an operator part sends lies in a file beside its arrays, until all have taken in a later batch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from d3gnn.kernel.arrays import StateLost
from d3gnn.kernel.blocks import Block, Kind
from d3gnn.kernel.operators.base import Moment
from d3gnn.spark import outbox as outbox_module
from d3gnn.spark.outbox import Outbox, read_sent
from d3gnn.spark.parcels import Delivery, Parcels, Stamp


def block(target: int, rows: int, value: float) -> Block:
    columns = (np.arange(rows, dtype=np.int32), np.full((rows, 4), value, np.float32))
    return Block(Kind.VALUES, 1, target, columns)


def delivered(parcels: Parcels, target: int) -> list[Block]:
    """What a part of the next operator finds."""
    rows = [bytes(parcel) for to, parcel in parcels.for_rows() if to == target]
    return Delivery.of(rows, sources=1).blocks(read_sent)


def values(blocks: list[Block]) -> list[float]:
    return [float(v) for found in blocks for v in found.columns[1][:, 0]]


def test_what_is_put_in_is_found_there(tmp_path: Path) -> None:
    outbox, stamp = Outbox(tmp_path), Stamp(3, 8, False)
    sent = outbox.send(stamp, 1, 3, [block(0, 2, 5.0), block(2, 1, 6.0), block(0, 1, 7.0)])
    assert values(delivered(sent, 0)) == [5.0, 5.0, 7.0]
    assert values(delivered(sent, 1)) == []
    assert values(delivered(sent, 2)) == [6.0]
    assert max(len(parcel) for _, parcel in sent.for_rows()) < 500, "rows only say where it is"


def test_a_batch_that_comes_again_is_sent_as_before(tmp_path: Path) -> None:
    stamp = Stamp(3, 8, False)
    sent = Outbox(tmp_path).send(stamp, 1, 2, [block(1, 2, 5.0)])
    again = Outbox(tmp_path).sent(stamp)
    assert again is not None
    assert again == sent
    assert Outbox(tmp_path).sent(Stamp(3, 10, False)) is None
    assert Outbox(tmp_path).sent(Stamp(4, 8, False)) is None


def test_the_next_batch_leaves_it_and_the_one_after_takes_its_place(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    sent = [outbox.send(Stamp(0, b, False), 1, 1, [block(0, 1, float(b))]) for b in range(2)]
    assert [values(delivered(parcels, 0)) for parcels in sent] == [[0.0], [1.0]]
    third = outbox.send(Stamp(0, 2, False), 1, 1, [block(0, 1, 2.0)])
    assert values(delivered(sent[1], 0)) == [1.0]
    assert values(delivered(third, 0)) == [2.0]
    assert len(list(tmp_path.iterdir())) == 2


def test_who_comes_too_late_is_told_so(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    first = outbox.send(Stamp(0, 0, False), 1, 1, [block(0, 1, 1.0)])
    rows = [bytes(parcel) for _, parcel in first.for_rows()]
    outbox.send(Stamp(0, 2, False), 1, 1, [block(0, 1, 2.0)])
    with pytest.raises(StateLost, match="batch 2 of epoch 0, but batch 0"):
        Delivery.of(rows, sources=1).blocks(read_sent)


def test_who_is_reading_may_go_on_when_all_is_forgotten(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    sent = outbox.send(Stamp(0, 0, False), 1, 1, [block(0, 3, 4.0)])
    found = delivered(sent, 0)
    outbox.clear()
    assert list(tmp_path.iterdir()) == []
    assert values(found) == [4.0] * 3


def test_room_for_one_large_batch_is_given_back(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    outbox.send(Stamp(0, 0, False), 1, 1, [block(0, 50_000, 1.0)])
    large = (tmp_path / "sent-0-0").stat().st_size
    sent = outbox.send(Stamp(0, 2, False), 1, 1, [block(0, 5, 2.0)])
    assert (tmp_path / "sent-0-0").stat().st_size < large / 100
    assert values(delivered(sent, 0)) == [2.0] * 5


def test_what_is_too_large_for_memory_lies_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_module, "LARGE", 10_000)
    near, far = tmp_path / "near", tmp_path / "far"
    near.mkdir()
    outbox = Outbox(near, far)
    for batch, rows in ((0, 5), (2, 500), (4, 5), (6, 500)):
        stamp = Stamp(1, batch, False)
        sent = outbox.send(stamp, 0, 1, [block(0, rows, float(batch))])
        is_far = sent.nbytes > 10_000
        assert is_far == (rows == 500)
        # The file of an earlier batch is in neither place any more.
        assert len(list(near.glob("sent-*"))) == (not is_far)
        assert len(list(far.glob("sent-*"))) == is_far
        again = Outbox(near, far).sent(stamp)
        assert again is not None
        assert bytes(again.data) == bytes(sent.data)
    outbox.clear()
    assert Outbox(near, far).sent(stamp) is None


def test_a_refresh_drains_and_forgets_what_was_told_unless_nothing_could_have_been() -> None:
    assert Stamp(2, 8, refresh=True, clock=5).moment == Moment(5, drain=True, anew=True)
    assert Stamp(1, 0, refresh=True, clock=5).moment == Moment(5, drain=True)
    assert Stamp(2, 8, refresh=False, clock=5, drain=True).moment == Moment(5, drain=True)
    assert Stamp(2, 8, refresh=False, clock=5).moment == Moment(5)
