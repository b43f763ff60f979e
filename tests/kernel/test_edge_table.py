"""What Partition decides about edges, read from its blocks alone, is what the events say."""

from __future__ import annotations

from typing import TypeVar

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from d3gnn.events import Event, EventBatch, GraphSchema, Key, delete_edge, delete_vertex, edge, vertex
from d3gnn.kernel.blocks import Block, Kind, block_keys
from d3gnn.kernel.operators import Partition
from d3gnn.kernel.reference import Oracle
from d3gnn.testing import event_batches, schemas

_T = TypeVar("_T")


class Receiver:
    """Rebuilds the graph from blocks, and objects to a slot that is used twice or emptied twice."""

    def __init__(self) -> None:
        self.master: dict[tuple[int, int], Key] = {}
        self.replica: dict[tuple[int, int], tuple[int, int]] = {}
        self.edge: dict[tuple[int, int], tuple[int, int]] = {}
        self.slots = 0

    def take(self, blocks: list[Block]) -> None:
        # Deletes are of what was there before; everything else is new.
        for kind in (Kind.REMOVES, Kind.LEAVES, Kind.DROPS, Kind.VERTICES, Kind.REPLICAS, Kind.ADDS):
            for block in blocks:
                if block.kind is kind:
                    self._take(block)

    def _take(self, block: Block) -> None:
        part, columns = block.target, [column.tolist() for column in block.columns]
        if block.kind in (Kind.VERTICES, Kind.REPLICAS, Kind.ADDS):
            assert max(columns[0]) < block.extent
        if block.kind is Kind.VERTICES:
            for row, id in zip(columns[0], block_keys(block).to_list(), strict=True):
                assert id is not None
                self._put(self.master, (part, row), id)
        elif block.kind is Kind.REPLICAS:
            for slot, *master in zip(*columns, strict=True):
                self._put(self.replica, (part, slot), (master[0], master[1]))
        elif block.kind is Kind.ADDS:
            for slot, src, dst, *_ in zip(*columns, strict=True):
                self._put(self.edge, (part, slot), (src, dst))
                self.slots = max(self.slots, slot + 1)
        elif block.kind is Kind.REMOVES:
            for slot in columns[0]:
                del self.edge[part, slot]
        elif block.kind is Kind.LEAVES:
            for slot in columns[0]:
                self.replica.pop((part, slot), None)  # one that came in this batch was never told of
                self.edge = {at: ends for at, ends in self.edge.items() if at[0] != part or slot not in ends}
        elif block.kind is Kind.DROPS:
            for row in columns[0]:
                del self.master[part, row]

    @staticmethod
    def _put(table: dict[tuple[int, int], _T], at: tuple[int, int], value: _T) -> None:
        assert at not in table, f"{at} is taken"
        table[at] = value

    def vertices(self) -> list[str]:
        return sorted(map(str, self.master.values()))

    def edges(self) -> list[tuple[str, str]]:
        """Ends of all edges; both must be replicas in the edge's part, of masters that exist."""
        return sorted(
            (str(self.master[self.replica[part, u]]), str(self.master[self.replica[part, v]]))
            for (part, _), (u, v) in self.edge.items()
        )


def run(partition: Partition, stream: list[list[Event]]) -> Receiver:
    receiver, oracle = Receiver(), Oracle(partition.schema)
    for events in stream:
        result = partition.process(EventBatch.of(events), clock=1)
        assert result.status.tolist() == oracle.apply(events)
        receiver.take(result.blocks)
        assert receiver.edges() == sorted((str(u), str(v)) for u, v in oracle.edges())
        assert receiver.vertices() == sorted(map(str, oracle.vertices))
        assert partition.vertex_count == len(oracle.vertices)
    return receiver


@given(data=st.data())
def test_blocks_say_what_the_events_say(data: st.DataObject) -> None:
    schema = data.draw(schemas(), "schema")
    stream = data.draw(event_batches(schema, "str", n_vertices=4, max_events=25), "stream")
    parts = data.draw(st.integers(1, 3), "parts")
    run(Partition(schema, parts, data.draw(st.sampled_from(["random", "hdrf"]), "partitioner")), stream)


def test_the_records_of_deleted_vertices_are_used_again() -> None:
    """A hub comes and goes 200 times: its edges take the slots of the ones before."""
    partition = Partition(GraphSchema(features={"x": 1}), 2)
    stream = []
    for i in range(200):
        stream += [[edge("hub", f"{i}.{j}") for j in range(10)], [delete_vertex("hub")]]
    assert run(partition, stream).slots < 300  # of 2,000 edges


def test_the_slots_of_deleted_edges_are_used_again_at_once() -> None:
    partition = Partition(GraphSchema(features={"x": 1}), 1)
    stream = [[edge(1, 2), edge(2, 3)]]
    stream += [[delete_edge(1, 2), edge(3, 1), delete_edge(3, 1), edge(1, 2)] for _ in range(20)]
    assert run(partition, stream).slots <= 4


@pytest.mark.parametrize("directed", [True, False])
def test_many_edges_come_go_and_come_again(directed: bool) -> None:
    """Enough to build the table anew several times, in the order that hurts open addressing."""
    partition = Partition(GraphSchema(features={"x": 1}, directed=directed), 2)
    pairs = [(u, v) for u in range(25) for v in range(u, 25)]
    rng = np.random.default_rng(3)
    stream = []
    for _ in range(4):
        stream.append([edge(*pairs[i]) for i in rng.permutation(len(pairs))[:250]])
        stream.append([delete_edge(*pairs[i]) for i in rng.permutation(len(pairs))[:200]])
    receiver = run(partition, stream)
    assert 0 < len(receiver.edge) <= (1 if directed else 2) * len(pairs)


def test_copies_survive_a_rebuild_and_go_newest_first() -> None:
    """Copies of one edge hang in a chain; building the table anew must not take a link for an edge."""
    schema = GraphSchema(edges="multi", features={"x": 1}, edge_features={"w": 1})
    partition = Partition(schema, 2)
    copies = [[edge(1, 2, [float(i)], time=i)] for i in range(6)]
    others = [[edge(100 + i, 200 + i, time=10) for i in range(block, block + 40)] for block in (0, 40, 80)]
    stream = [*copies[:3], others[0], *copies[3:], others[1], others[2]]
    stream += [[delete_edge(1, 2, time=20 + i)] for i in range(7)]  # one more than there are
    run(partition, stream)


def test_a_rebuild_finds_the_newest_copy_wherever_its_record_is() -> None:
    """The newest copy has taken the record of an edge before all others."""
    partition = Partition(GraphSchema(edges="multi", features={"x": 1}), 1)
    run(
        partition,
        [
            [edge(8, 9), edge(1, 2), edge(1, 2)],
            [delete_edge(8, 9, time=1)],
            [edge(1, 2, time=2)],
            [edge(i, i + 1, time=3) for i in range(10, 300)],
            *([delete_edge(1, 2, time=4)] for _ in range(4)),
        ],
    )


def test_a_rebuild_in_the_batch_after_a_delete_keeps_the_living_copies() -> None:
    partition = Partition(GraphSchema(edges="multi", features={"x": 1}), 1)
    run(
        partition,
        [
            [edge(1, 2), edge(1, 2), edge(1, 3), edge(3, 2), edge(3, 3)],
            [delete_vertex(3), vertex(3)],
            [edge(i, i + 1, time=1) for i in range(10, 200)],
            [edge(1, 3, time=2), edge(3, 2, time=2), delete_edge(1, 2, time=3), delete_edge(1, 2, time=3)],
            [delete_edge(1, 2, time=4), delete_edge(1, 3, time=4), delete_edge(3, 3, time=4)],
        ],
    )


def test_append_only_streams_keep_no_records() -> None:
    with_table = Partition(GraphSchema(edges="multi", features={"x": 1}), 1)
    without = Partition(GraphSchema(edges="append", features={"x": 1}), 1)
    events = EventBatch.edges(np.arange(20_000) % 50, np.arange(20_000) % 49)
    for partition in (with_table, without):
        partition.process(events, 1)
    assert without.space.nbytes < with_table.space.nbytes - 20_000 * 28
