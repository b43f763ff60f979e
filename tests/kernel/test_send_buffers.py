"""Several parts write rows for replicas into one buffer."""

from __future__ import annotations

import numpy as np
import pytest

from d3gnn import LocalEngine, events
from d3gnn.kernel.operators import Vertex
from d3gnn.kernel.operators.send_buffers import SendBuffers
from d3gnn.kernel.touched import NEVER
from d3gnn.nn import GraphSAGE
from d3gnn.types import Floats, Ints, Ints32

PARTS, WIDTH = 3, 2
SLOTS = np.array([10, 11, 12], np.int32)
#: Row 0 has links to (1, 20) and (2, 30), row 2 to (1, 22), row 1 none.
FIRST, LINKS = np.array([1, 0, 3], np.int32), np.array([[1, 20, 2], [2, 30, 0], [1, 22, 0]], np.int32)
NONE = np.zeros(0, np.int32)


def changed(rows: list[int]) -> tuple[Ints32, Ints, Ints, Floats]:
    """Changed rows; times, arrivals and messages follow from the row."""
    row = np.array(rows, np.int32)
    time = row.astype(np.int64)
    return row, time + 100, time + 200, np.stack([row, row + 0.5], 1).astype(np.float32)


def found(buffers: SendBuffers, source: int = 0) -> dict[int, list[tuple[int, int, int, float]]]:
    """By part: slots, times, arrivals, and the first number of the message."""
    blocks = buffers.take(source)
    assert all(block.source == source for block in blocks)
    columns = {block.target: block.columns for block in blocks}
    return {
        target: list(zip(slot.tolist(), time.tolist(), arrival.tolist(), message[:, 0].tolist(), strict=True))
        for target, (slot, time, arrival, message) in columns.items()
    }


def test_changed_rows_are_sent_to_their_part_and_along_links() -> None:
    buffers = SendBuffers(PARTS, WIDTH)
    nothing_new = (NONE, NONE, NONE, np.zeros((0, WIDTH), np.float32))
    buffers.write(0, changed([0, 1]), nothing_new, SLOTS, (FIRST, LINKS))
    buffers.write(2, changed([2]), nothing_new, SLOTS, (FIRST, LINKS))
    assert found(buffers, 7) == {
        0: [(10, 100, 200, 0.0), (11, 101, 201, 1.0)],
        1: [(20, 100, 200, 0.0), (22, 102, 202, 2.0)],
        2: [(30, 100, 200, 0.0), (12, 102, 202, 2.0)],
    }
    assert found(buffers) == {}, "take empties the buffers"


def test_new_sources_get_messages_without_a_cause() -> None:
    buffers = SendBuffers(PARTS, WIDTH)
    messages = np.array([[5, 0], [6, 0]], np.float32)
    new = (np.array([1, 1], np.int32), np.array([40, 41], np.int32), np.array([1, 0], np.int32), messages)
    buffers.write(0, changed([]), new, SLOTS, (FIRST, LINKS))
    assert found(buffers) == {1: [(40, -NEVER, NEVER, 6.0), (41, -NEVER, NEVER, 5.0)]}


@pytest.mark.parametrize("rows", [1, 63, 64, 65, 200, 5000])
def test_buffers_grow_between_and_within_senders(rows: int) -> None:
    buffers = SendBuffers(PARTS, WIDTH)
    slots = np.arange(rows, dtype=np.int32)
    first, links = np.zeros(rows, np.int32), np.zeros((0, 3), np.int32)
    nothing_new = (NONE, NONE, NONE, np.zeros((0, WIDTH), np.float32))
    for _ in range(2):
        for part in (0, 1, 1):
            buffers.write(part, changed(list(range(rows))), nothing_new, slots, (first, links))
        taken = found(buffers)
        assert [row[0] for row in taken[0]] == list(range(rows))
        assert [row[3] for row in taken[1]] == 2 * list(range(rows))


def test_taken_blocks_do_not_change() -> None:
    buffers = SendBuffers(PARTS, WIDTH)
    nothing_new = (NONE, NONE, NONE, np.zeros((0, WIDTH), np.float32))
    buffers.write(0, changed([1]), nothing_new, SLOTS, (FIRST, LINKS))
    (block,) = buffers.take(0)
    buffers.write(0, changed([0, 2]), nothing_new, SLOTS, (FIRST, LINKS))
    assert block.columns[0].tolist() == [11]
    assert block.columns[3].tolist() == [[1.0, 1.5]]


def test_after_an_error_the_buffers_are_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    first = [events.edge(i, i + 1, time=i) for i in range(40)]
    second = [events.edge(i, i + 3, time=100 + i) for i in range(60)]
    engine = LocalEngine(GraphSAGE(4, 4, 2, seed=1), parts=PARTS)
    engine.apply(first)
    step = Vertex.step

    def fail_at_last(self: Vertex, part: int, *arguments: object) -> object:
        if part == PARTS - 1:
            raise KeyboardInterrupt
        return step(self, part, *arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(Vertex, "step", fail_at_last)
        with pytest.raises(KeyboardInterrupt):
            engine.apply(second)
    assert all(vertex.flush() == [] for vertex in engine.vertices)
    engine.refresh()
    other = LocalEngine(GraphSAGE(4, 4, 2, seed=1))
    other.apply(first + second)
    ids = list(range(63))
    np.testing.assert_allclose(engine.embeddings(ids), other.embeddings(ids), atol=1e-6)
