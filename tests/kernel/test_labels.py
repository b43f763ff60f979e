"""Partition sends labels to the part of their vertex's master, and operators pass them to the last one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from d3gnn import GraphSchema, LocalEngine
from d3gnn.events import Event, EventBatch, Key, Reason, delete_vertex, edge, label, vertex
from d3gnn.kernel.blocks import Block, BlockKind, block_keys
from d3gnn.kernel.log import LogEntry
from d3gnn.kernel.operators import Partition, Vertex
from d3gnn.kernel.topology import Topology
from d3gnn.nn import GraphSAGE

SCHEMA = GraphSchema(features={"x": 1}, label_width=2)
PARTS = 3
#: Deleted, time, arrival, values.
Row = tuple[bool, int, int, list[float] | None]


def delete_label(id: Key, time: int) -> Event:
    return Event("delete", "label", id, time=time)


class Masters:
    """Reads labels from blocks, and tracks the id of each row of each part."""

    def __init__(self) -> None:
        self.ids: dict[tuple[int, int], Key] = {}

    def rows(self, blocks: list[Block]) -> dict[Key, Row]:
        for block in blocks:
            if block.kind is BlockKind.VERTICES:
                for row, id in zip(block.columns[0].tolist(), block_keys(block).to_list(), strict=True):
                    assert id is not None
                    self.ids[block.target, row] = id
        found: dict[Key, Row] = {}
        for block in blocks:
            if block.kind is BlockKind.LABELS:
                for row, deleted, time, arrival, values in zip(
                    *(column.tolist() for column in block.columns), strict=True
                ):
                    id = self.ids[block.target, row]
                    assert id not in found, "one row per vertex"
                    assert not deleted or all(map(math.isnan, values))
                    found[id] = (bool(deleted), time, arrival, None if deleted else values)
        return found


class Sent:
    """A partition, and the labels that it sends for each batch."""

    def __init__(self) -> None:
        self.partition, self.masters = Partition(SCHEMA, PARTS), Masters()
        self.entries: list[LogEntry] = []
        self.status: list[int] = []

    def __call__(self, *events: Event, clock: int = 1) -> dict[Key, Row]:
        result = self.partition.process(EventBatch.of(events), clock)
        self.entries.append(result.entry)
        self.status = result.status.tolist()
        return self.masters.rows(result.blocks)


def test_creates_updates_and_deletes_are_sent() -> None:
    send = Sent()
    assert send(edge(1, 2, time=0)) == {}
    assert send(label(1, [1.0, 2.0], time=5), clock=7) == {1: (False, 5, 7, [1.0, 2.0])}
    update = Event("update", "label", 1, time=6, value=[3.0, 4.0])
    assert send(update, label(2, [5.0, 6.0], time=6)) == {
        1: (False, 6, 1, [3.0, 4.0]),
        2: (False, 6, 1, [5.0, 6.0]),
    }
    assert send(delete_label(1, time=7)) == {1: (True, 7, 1, None)}
    assert send(label(1, [8.0, 9.0], time=8)) == {1: (False, 8, 1, [8.0, 9.0])}


def test_the_last_of_several_labels_in_a_batch_is_sent() -> None:
    send = Sent()
    events = [vertex(1, time=0), label(1, [1.0, 1.0], time=1), label(1, [2.0, 2.0], time=2)]
    assert send(*events) == {1: (False, 2, 1, [2.0, 2.0])}
    assert send(label(1, [3.0, 3.0], time=3), delete_label(1, time=4)) == {1: (True, 4, 1, None)}
    assert send(label(1, [4.0, 4.0], time=5), delete_label(1, time=6), label(1, [5.0, 5.0], time=7)) == {
        1: (False, 7, 1, [5.0, 5.0])
    }


def test_late_and_repeated_labels_are_not_sent() -> None:
    send = Sent()
    send(vertex(1, time=0), label(1, [1.0, 1.0], time=5))
    assert send(label(1, [2.0, 2.0], time=4), delete_label(1, time=3)) == {}
    assert send.status == [Reason.LATE, Reason.LATE]
    send(delete_label(1, time=6))
    assert send(delete_label(1, time=7), label(1, [2.0, 2.0], time=5)) == {}
    assert sorted(send.status) == sorted([Reason.REPEATED, Reason.LATE])


@pytest.mark.parametrize("creates", [vertex(1, time=9), edge(1, 2, time=9), edge(2, 1, time=9)])
def test_a_parked_label_is_sent_when_its_vertex_is_created(creates: Event) -> None:
    send = Sent()
    assert send(label(1, [1.0, 1.0], time=5)) == {}
    assert send(label(1, [2.0, 2.0], time=6)) == {}
    assert send.status == [Reason.APPLIED]
    assert send(creates, clock=10) == {1: (False, 6, 10, [2.0, 2.0])}
    assert send(edge(1, 3, time=11)) == {}, "once"


def test_a_parked_label_and_its_vertex_may_share_a_batch() -> None:
    send = Sent()
    assert send(label(1, [1.0, 1.0], time=1), vertex(1, time=2)) == {1: (False, 1, 1, [1.0, 1.0])}


def test_a_parked_label_that_was_deleted_is_not_sent() -> None:
    send = Sent()
    send(label(1, [1.0, 1.0], time=1))
    send(delete_label(1, time=2))
    assert send(vertex(1, time=3)) == {}


def test_deleting_a_vertex_deletes_its_label() -> None:
    send = Sent()
    send(edge(1, 2, time=0), label(1, [1.0, 1.0], time=1))
    assert send(label(1, [2.0, 2.0], time=2), delete_vertex(1, time=3)) == {}
    assert send(vertex(1, time=4)) == {}
    assert send(label(1, [3.0, 3.0], time=2)) == {}  # late
    assert send(label(1, [3.0, 3.0], time=3)) == {1: (False, 3, 1, [3.0, 3.0])}


def test_a_label_is_sent_to_a_vertex_that_was_created_again() -> None:
    send = Sent()
    send(edge(1, 2, time=0), label(1, [1.0, 1.0], time=1))
    assert send(
        label(1, [2.0, 2.0], time=2),
        delete_vertex(1, time=3),
        label(1, [4.0, 4.0], time=4),
        vertex(1, time=5),
    ) == {1: (False, 4, 1, [4.0, 4.0])}


def test_a_replay_sends_the_same_labels() -> None:
    batches: list[list[Event]] = [
        [label(1, [1.0, 1.0], time=1), edge(2, 3, time=1)],
        [edge(1, 2, time=2), label(2, [2.0, 2.0], time=2)],
        [delete_label(2, time=3), delete_vertex(3, time=3)],
    ]
    send = Sent()
    sent = [send(*events, clock=5) for events in batches]
    partition, masters = Partition(SCHEMA, PARTS), Masters()
    again = [masters.rows(partition.process(e.events, 5, replay=e.part).blocks) for e in send.entries]
    assert again == sent


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> dict[Key, Row]:
    """The newest label of each vertex, as received by the last operator."""
    table: dict[Key, Row] = {}
    masters, step = Masters(), Vertex.step

    def recorded(
        self: Vertex, part: int, topology: Topology, blocks: list[Block], context: Any
    ) -> list[Block]:
        if self.id.layer == 2:
            joined = [b for b in (topology.vertices, topology.labels) if b is not None]
            assert all(block.target == part for block in joined)
            table.update(masters.rows(joined))
        return step(self, part, topology, blocks, context)

    monkeypatch.setattr(Vertex, "step", recorded)
    return table


def test_labels_reach_the_last_operator(received: dict[Key, Row]) -> None:
    engine = LocalEngine(GraphSAGE(1, 2, 2, 2, seed=1), parts=PARTS, schema=SCHEMA)
    engine.apply([label(9, [9.0, 9.0], time=0), *(edge(i, i + 1, time=1) for i in range(6))], clock=1)
    engine.apply([label(i, [float(i), 0.0], time=2) for i in range(7)], clock=2)
    assert received == {i: (False, 2, 2, [float(i), 0.0]) for i in range(7)}
    engine.apply([delete_label(3, time=3), edge(9, 0, time=3)], clock=3)
    assert received[3] == (True, 3, 3, None)
    assert received[9] == (False, 0, 3, [9.0, 9.0])
    expected = {id: values for id, (_, _, _, values) in received.items() if values is not None}
    received.clear()
    engine.refresh()
    assert {id: values for id, (deleted, _, _, values) in received.items() if not deleted} == expected
    keys, labels = engine.partition.labels()
    stored = dict(zip(keys.to_list(), np.asarray(labels).tolist(), strict=True))
    assert stored == expected
