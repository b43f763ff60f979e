"""The graph that Partition's blocks describe equals the graph of the oracle."""

from __future__ import annotations

from typing import TypeVar

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from d3gnn.events import (
    EdgeMode,
    Event,
    EventBatch,
    GraphSchema,
    Key,
    delete_edge,
    delete_vertex,
    edge,
    vertex,
)
from d3gnn.kernel.blocks import Block, BlockKind, block_keys
from d3gnn.kernel.operators import Partition
from d3gnn.oracle import Oracle
from d3gnn.testing import event_batches, schemas

_T = TypeVar("_T")


class Receiver:
    """Rebuilds the graph from blocks, and fails if a slot is used twice or cleared twice."""

    def __init__(self) -> None:
        self.master: dict[tuple[int, int], Key] = {}
        self.replica: dict[tuple[int, int], tuple[int, int]] = {}
        self.edge: dict[tuple[int, int], tuple[int, int]] = {}
        self.slots = 0

    def take(self, blocks: list[Block]) -> None:
        # Deletes refer to the graph before the batch; everything else is new.
        for kind in (
            BlockKind.EDGE_DELETES,
            BlockKind.REPLICA_DELETES,
            BlockKind.VERTEX_DELETES,
            BlockKind.VERTICES,
            BlockKind.REPLICAS,
            BlockKind.EDGE_ADDS,
        ):
            for block in blocks:
                if block.kind is kind:
                    self._take(block)

    def _take(self, block: Block) -> None:
        part, columns = block.target, [column.tolist() for column in block.columns]
        if block.kind in (BlockKind.VERTICES, BlockKind.REPLICAS, BlockKind.EDGE_ADDS):
            assert max(columns[0]) < block.extent
        if block.kind is BlockKind.VERTICES:
            for row, id in zip(columns[0], block_keys(block).to_list(), strict=True):
                assert id is not None
                self._put(self.master, (part, row), id)
        elif block.kind is BlockKind.REPLICAS:
            for slot, *master in zip(*columns, strict=True):
                self._put(self.replica, (part, slot), (master[0], master[1]))
        elif block.kind is BlockKind.EDGE_ADDS:
            for slot, src, dst, *_ in zip(*columns, strict=True):
                self._put(self.edge, (part, slot), (src, dst))
                self.slots = max(self.slots, slot + 1)
        elif block.kind is BlockKind.EDGE_DELETES:
            for slot in columns[0]:
                del self.edge[part, slot]
        elif block.kind is BlockKind.REPLICA_DELETES:
            for slot in columns[0]:
                self.replica.pop((part, slot), None)  # a replica that was added in this batch was never sent
                self.edge = {at: ends for at, ends in self.edge.items() if at[0] != part or slot not in ends}
        elif block.kind is BlockKind.VERTEX_DELETES:
            for row in columns[0]:
                del self.master[part, row]

    @staticmethod
    def _put(table: dict[tuple[int, int], _T], at: tuple[int, int], value: _T) -> None:
        assert at not in table, f"{at} is in use"
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
def test_blocks_describe_the_graph_of_the_oracle(data: st.DataObject) -> None:
    expiry = data.draw(st.booleans(), "expiry")
    modes: tuple[EdgeMode, ...] = ("simple", "multi", "keyed", "append")
    schema = data.draw(schemas(edges=modes[:3] if expiry else modes, expiry=expiry), "schema")
    stream = data.draw(event_batches(schema, "str", n_vertices=4, max_events=25), "stream")
    parts = data.draw(st.integers(1, 3), "parts")
    run(Partition(schema, parts, data.draw(st.sampled_from(["random", "hdrf"]), "partitioner")), stream)


def test_the_records_of_deleted_vertices_are_reused() -> None:
    """A hub is created and deleted 200 times: its edges reuse the slots of earlier ones."""
    partition = Partition(GraphSchema(features={"x": 1}), 2)
    stream = []
    for i in range(200):
        stream += [[edge("hub", f"{i}.{j}") for j in range(10)], [delete_vertex("hub")]]
    assert run(partition, stream).slots < 300  # of 2,000 edges


def test_the_slots_of_deleted_edges_are_reused_at_once() -> None:
    partition = Partition(GraphSchema(features={"x": 1}), 1)
    stream = [[edge(1, 2), edge(2, 3)]]
    stream += [[delete_edge(1, 2), edge(3, 1), delete_edge(3, 1), edge(1, 2)] for _ in range(20)]
    assert run(partition, stream).slots <= 4


@pytest.mark.parametrize("directed", [True, False])
def test_many_edges_are_created_deleted_and_created_again(directed: bool) -> None:
    """Enough to rebuild the table several times, in an order that is bad for open addressing."""
    partition = Partition(GraphSchema(features={"x": 1}, directed=directed), 2)
    pairs = [(u, v) for u in range(25) for v in range(u, 25)]
    rng = np.random.default_rng(3)
    stream = []
    for _ in range(4):
        stream.append([edge(*pairs[i]) for i in rng.permutation(len(pairs))[:250]])
        stream.append([delete_edge(*pairs[i]) for i in rng.permutation(len(pairs))[:200]])
    receiver = run(partition, stream)
    assert 0 < len(receiver.edge) <= (1 if directed else 2) * len(pairs)


def test_copies_survive_a_rebuild_and_are_deleted_newest_first() -> None:
    """Copies of one edge are linked in a chain; a rebuild must not mistake a link for an edge."""
    schema = GraphSchema(edges="multi", features={"x": 1}, edge_features={"w": 1})
    partition = Partition(schema, 2)
    copies = [[edge(1, 2, [float(i)], time=i)] for i in range(6)]
    others = [[edge(100 + i, 200 + i, time=10) for i in range(block, block + 40)] for block in (0, 40, 80)]
    stream = [*copies[:3], others[0], *copies[3:], others[1], others[2]]
    stream += [[delete_edge(1, 2, time=20 + i)] for i in range(7)]  # one more than exist
    run(partition, stream)


def test_a_rebuild_finds_the_newest_copy_wherever_its_record_is() -> None:
    """The newest copy reuses the record of a deleted edge, which is before all other records."""
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


def test_a_rebuild_in_the_batch_after_a_delete_keeps_the_other_copies() -> None:
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
    assert without.part_state.nbytes < with_table.part_state.nbytes - 20_000 * 28
