"""Operators as a host will run them: blocks come packed, in pieces and in any order; workers take turns."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any
from unittest.mock import patch

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings

from d3gnn import GraphSchema, LocalEngine
from d3gnn.bench.check import TOLERANCE, compare
from d3gnn.events import EdgeMode, EventBatch, Key, delete_edge, delete_vertex, edge, feature, vertex
from d3gnn.events.keys import Keys
from d3gnn.kernel import arrays
from d3gnn.kernel.arrays import MappedSpace, Space, StateLost
from d3gnn.kernel.blocks import LAST_TOPOLOGY, Block, Kind, by_kind, pack, split, unpack
from d3gnn.kernel.operators import Edge, Operator, Partition, Vertex
from d3gnn.kernel.operators import edge as edge_operator
from d3gnn.kernel.operators.masters import VertexState
from d3gnn.kernel.topology import Topology
from d3gnn.nn import GNN, SAGE, GraphSAGE
from d3gnn.nn.layer import Layer
from d3gnn.sources import SyntheticStream
from d3gnn.testing import Witness, event_batches, random_batches, schemas
from d3gnn.types import Floats

ONE_ROW, FEW_ROWS = 1, 4096 + 200
TOPOLOGY = [kind for kind in Kind if kind <= LAST_TOPOLOGY]


class PackingEngine(LocalEngine):
    """Sends every block as a cluster would: cut up, packed, shuffled, and read-only at the other end."""

    limit = FEW_ROWS
    shuffle = random.Random(1)

    def _step(
        self, operator: Operator[Any], topology: list[Topology], mine: list[list[Block]]
    ) -> list[Block]:
        sent = [*(block for part in topology for block in part.blocks), *chain(*mine)]
        packed = [bytes(pack(piece)) for block in sent for piece in split(block, self.limit)]
        self.shuffle.shuffle(packed)
        received = [unpack(piece) for piece in packed]
        assert not any(column.flags.writeable for block in received for column in block.columns)
        return [
            out
            for part in range(self.parts)
            for out in operator.process(
                part, [block for block in received if block.target == part], self.moment
            )
            if out.kind > LAST_TOPOLOGY
        ]


@settings(max_examples=60)
@given(data=st.data())
def test_size_order_and_ownership_of_blocks_change_nothing(data: st.DataObject) -> None:
    schema = data.draw(schemas(width=3), "schema")
    stream = data.draw(event_batches(schema, data.draw(st.sampled_from(["int", "str"]), "ids")), "stream")
    model = GraphSAGE([3, *data.draw(st.sampled_from([[4], [2, 4], [4, 2, 3]]), "widths")], seed=1)
    engine = PackingEngine(model, data.draw(st.integers(1, 3), "parts"), schema=schema)
    engine.limit = data.draw(st.sampled_from([ONE_ROW, FEW_ROWS]), "limit")
    engine.shuffle = random.Random(data.draw(st.integers(0, 9), "shuffle"))
    pulls = data.draw(st.sampled_from([True, False]), "pulls")
    with patch.object(edge_operator, "prefers_pull", lambda *_: pulls):
        witness = Witness(engine)
        for events in stream:
            witness.apply(events)
        witness.refresh()


@pytest.mark.parametrize("edges", ["simple", "multi", "append"])
def test_size_order_and_ownership_change_nothing_on_longer_streams(edges: EdgeMode) -> None:
    schema = GraphSchema(edges=edges, directed=edges != "multi", features={"x": 2, "y": 1})
    engine = PackingEngine(GraphSAGE([3, 6, 4], seed=2), 3, schema=schema)
    witness = Witness(engine)
    for batch in random_batches(schema, seed=7, n_batches=12, batch_size=80, n_vertices=30, ids="str"):
        witness.apply(batch)
    witness.refresh()


def layers_of(model: GNN) -> list[Layer | None]:
    return [None, *model.layers, None]


class RelayEngine(LocalEngine):
    """For every batch and part, some worker or other goes on over the same files."""

    def __init__(self, model: GNN, parts: int, schema: GraphSchema, folder: Path) -> None:
        super().__init__(model, parts, schema=schema, folder=folder)
        self._turns = random.Random(3)
        mine: list[Operator[Any]] = [*self.vertices, *self.edges]
        self._crews = [mine, *(self._crew() for _ in range(2))]
        for operator in mine:
            for part in range(parts):
                operator.state(part)

    def _crew(self) -> list[Operator[Any]]:
        @cache
        def spaces(operator: str, part: int) -> Space:
            return MappedSpace(Path(str(self.folder)) / operator / str(part))

        layers = layers_of(self.model)
        vertices = [
            Vertex(i, self.parts, self.schema, layers[i], layers[i + 1], spaces)
            for i in range(len(layers) - 1)
        ]
        edges = [Edge(i, self.parts, layer, spaces) for i, layer in enumerate(self.model.layers, start=1)]
        return [*vertices, *edges]

    def _step(
        self, operator: Operator[Any], topology: list[Topology], mine: list[list[Block]]
    ) -> list[Block]:
        out = []
        for part in range(self.parts):
            crew = self._turns.choice(self._crews)
            worker = next(o for o in crew if o.name == operator.name)
            with worker.space(part).locked():
                out += worker.step(part, topology[part], mine[part], self.moment)
                out += worker.together(part)
        return out

    def embeddings(self, ids: list[Key] | Keys | None = None) -> Floats:  # type: ignore[override]
        for part in range(self.parts):
            with self.vertices[-1].space(part).locked():
                pass  # takes in what others have grown
        return super().embeddings(ids)


def test_workers_take_turns_over_the_same_files(tmp_path: Path) -> None:
    schema = GraphSchema(features={"x": 3})
    witness = Witness(RelayEngine(GraphSAGE([3, 5, 4], seed=1), 2, schema, tmp_path))
    for batch in random_batches(
        schema, seed=3, n_batches=20, batch_size=60, n_vertices=400, delete_vertex=0.05
    ):
        witness.apply(batch)


def renew(engine: LocalEngine) -> None:
    """All operators anew, as after a restart of every process."""
    for key, space in engine._opened.items():
        assert isinstance(space, MappedSpace)
        space.close()
        engine._opened[key] = MappedSpace(space.folder)
    operators: list[Operator[Any]] = [*engine.vertices, *engine.edges]
    for operator in operators:
        operator.forget()
    space = engine._space("partition", 0)
    engine.partition = Partition(engine.schema, engine.parts, engine.partition.partitioner, space)


def test_operators_made_anew_go_on_exactly(tmp_path: Path) -> None:
    schema = GraphSchema(edges="multi", features={"x": 3}, edge_features={"w": 2})
    model = GraphSAGE([3, 5, 4], seed=1)
    renewed, steady = (LocalEngine(model, 2, schema=schema, folder=tmp_path / name) for name in ("a", "b"))
    for batch in random_batches(schema, seed=4, n_batches=12, batch_size=60, n_vertices=300, ids="str"):
        updates, expected = renewed.apply(batch, clock=1), steady.apply(batch, clock=1)
        assert updates.ids.to_list() == expected.ids.to_list()
        assert updates.status.tolist() == expected.status.tolist()
        assert (updates.embedding == expected.embedding).all()
        renew(renewed)
        assert renewed.ids().to_list() == steady.ids().to_list()
        assert (renewed.embeddings() == steady.embeddings()).all()


def test_loading_over_arrays_that_were_used_before(tmp_path: Path) -> None:
    engine = LocalEngine(GraphSAGE([3, 4, 2], "sum", seed=1), 2, folder=tmp_path / "arrays")
    engine.apply([edge(i, (i * 7 + 3) % 20, time=i) for i in range(20)])
    engine.apply([delete_edge(0, 3, time=100)])
    ids = engine.ids()
    expected = engine.embeddings(ids)
    engine.save(tmp_path / "saved")
    loaded = LocalEngine.load(tmp_path / "saved", arrays=tmp_path / "arrays")
    np.testing.assert_allclose(loaded.embeddings(ids), expected, rtol=1e-5, atol=1e-6)


def test_an_engine_over_arrays_that_were_used_before_begins_anew_or_refuses(tmp_path: Path) -> None:
    model = GraphSAGE([3, 4, 2], seed=1)
    LocalEngine(model, 2, folder=tmp_path).apply([edge(1, 2), edge(2, 3)])
    try:
        engine = LocalEngine(model, 2, folder=tmp_path)
    except StateLost:
        return
    before = engine.ids().to_list()
    engine.refresh()
    assert engine.ids().to_list() == before


def test_a_replica_that_comes_and_leaves_within_a_batch() -> None:
    """Its slot was never announced, and may lie beyond all that the part has room for."""
    for others in range(100, 135):
        engine = LocalEngine(GraphSAGE([1, 2], seed=1), 2, "random")
        engine.apply([vertex("a"), *(vertex(f"v{i}") for i in range(others))])
        engine.apply([*(edge("a", f"v{i}", time=1) for i in range(3)), delete_vertex("a", time=2)])
        assert len(engine) == others


# ---------------------------------------------------------------------- one operator at a time


def vertex_part() -> tuple[Vertex, Callable[..., dict[Key, list[float]]]]:
    """The masters 0, 1, 2 (ids 10, 11, 12) after a layer that adds its aggregate to its root."""
    layer = SAGE(1, 1, "sum")
    with torch.no_grad():
        layer.lin_l.weight.fill_(1.0)
        layer.lin_r.weight.fill_(1.0)
        layer.lin_l.bias.fill_(0.0)
    space = Space()
    operator = Vertex(1, 2, GraphSchema(features={"x": 1}), layer, None, lambda *_: space)

    def process(*blocks: Block) -> dict[Key, list[float]]:
        with torch.inference_mode():
            out = operator.process(0, blocks)
        assert all(block.kind is Kind.OUTPUT for block in out)
        rows: dict[Key, list[float]] = {}
        for block in out:
            _, _, _, values, keys = block.columns
            rows |= dict(zip(keys.tolist(), values.tolist(), strict=True))
        return rows

    row = np.arange(3, dtype=np.int32)
    zeros = np.zeros(3, np.int64)
    made = Block(Kind.VERTICES, 0, 0, (row, row, zeros.astype(np.uint64), zeros, zeros, row + 10), extent=3)
    assert process(made, roots({0: 0.0, 1: 0.0, 2: 0.0})) == {10: [0.0], 11: [0.0], 12: [0.0]}
    return operator, process


def roots(values: dict[int, float]) -> Block:
    rows, zeros = np.array(list(values), np.int32), np.zeros(len(values), np.int64)
    return Block(Kind.ROOTS, 0, 0, (rows, zeros, zeros, np.array([list(values.values())], np.float32).T))


def partials(source: int, rows: dict[int, tuple[int, float]], **options: Any) -> Block:
    counts = np.array([count for count, _ in rows.values()], np.int32)
    states = np.array([[state] for _, state in rows.values()], np.float32).reshape(-1, 1)
    zeros = np.zeros(len(rows), np.int64)
    return Block(
        Kind.PARTIALS, source, 0, (np.array(list(rows), np.int32), counts, zeros, zeros, states), **options
    )


def test_partials_of_all_parts_are_joined_and_each_replaces_its_last_one() -> None:
    _, process = vertex_part()
    assert process(partials(0, {0: (1, 2.0)}), partials(1, {0: (1, 5.0), 1: (2, 1.0)})) == {
        10: [7.0],
        11: [1.0],
    }
    assert process(partials(1, {0: (3, 6.0)})) == {10: [8.0]}
    assert process(partials(1, {0: (3, 6.0)})) == {}, "the same again changes nothing"


def test_a_count_of_0_deletes_a_partial_of_its_sender_alone() -> None:
    _, process = vertex_part()
    process(partials(0, {0: (1, 2.0)}), partials(1, {0: (1, 5.0)}))
    assert process(partials(1, {0: (0, 99.0)})) == {10: [2.0]}
    assert process(partials(1, {0: (0, 99.0)})) == {}


def test_a_full_block_clears_what_its_sender_sent_before_and_nothing_else() -> None:
    _, process = vertex_part()
    process(partials(0, {0: (1, 2.0), 1: (1, 3.0)}), partials(1, {0: (1, 5.0)}))
    # Row 1 is not in the block: what part 0 sent for it is gone as soon as anybody looks.
    assert process(partials(0, {0: (1, 4.0)}, full=True), roots({1: 0.5})) == {10: [9.0], 11: [0.5]}


def test_the_pieces_of_a_full_block_clear_once() -> None:
    _, process = vertex_part()
    process(partials(1, {2: (1, 8.0)}))
    whole = partials(1, {0: (1, 1.0), 1: (1, 2.0)}, full=True)
    pieces = list(split(whole, ONE_ROW))
    assert len(pieces) == 2
    assert process(*reversed(pieces), roots({2: 0.25})) == {10: [1.0], 11: [2.0], 12: [0.25]}


def test_a_dropped_master_leaves_nothing_to_the_next_one() -> None:
    operator, process = vertex_part()
    process(partials(0, {0: (1, 2.0)}), partials(1, {0: (1, 5.0)}))
    one, zero = np.ones(1, np.uint8), np.zeros(1, np.int64)
    dropped = Block(Kind.DROPS, 0, 0, (np.zeros(1, np.int32), one, zero, zero))
    assert list(process(dropped)) == [10]
    # Its partials are free again: others take them, and see nothing of what they held.
    assert process(partials(1, {1: (1, 1.0), 2: (1, 1.0)})) == {11: [1.0], 12: [1.0]}
    assert operator.values(0, np.array([1, 2])).tolist() == [[1.0], [1.0]]


def sent(engine: LocalEngine, events: list[Any]) -> list[tuple[str, Block]]:
    """Apply events; every block that any operator but Partition sent, with the operator's name."""
    blocks: list[tuple[str, Block]] = []

    def spy(
        self: LocalEngine, operator: Operator[Any], topology: list[Topology], mine: list[list[Block]]
    ) -> list[Block]:
        out: list[Block] = []
        for part in range(self.parts):
            out += operator.process(part, [*topology[part].blocks, *mine[part]], self.moment)
        blocks.extend((operator.name, block) for block in out)
        return [block for block in out if block.kind > LAST_TOPOLOGY]

    with patch.object(LocalEngine, "_step", spy):
        engine.apply(events)
    return blocks


def rows_sent(blocks: list[tuple[str, Block]], operator: str, kind: Kind) -> int:
    return sum(len(block) for name, block in blocks if name == operator and block.kind is kind)


def test_an_unchanged_value_goes_to_new_sources_only() -> None:
    engine = LocalEngine(GraphSAGE([2, 2, 2], seed=1), 4, "random")
    blocks = sent(engine, [edge("hub", f"v{i}") for i in range(12)])
    copies = rows_sent(blocks, "vertex-0", Kind.SOURCES)  # of the hub alone: nobody else is a source
    assert copies > 1
    new = 0
    for i in range(12):
        blocks = sent(engine, [edge(f"v{i}", "hub", time=1)])
        new += rows_sent(blocks, "vertex-0", Kind.SOURCES)
        assert rows_sent(blocks, "vertex-0", Kind.VALUES) == rows_sent(blocks, "vertex-0", Kind.SOURCES)
    assert new > 0
    # A changed one goes to every part where it is a source, and to its own, once.
    blocks = sent(engine, [feature("hub", [1.0, 1.0], time=3)])
    assert rows_sent(blocks, "vertex-0", Kind.VALUES) == 1 + copies


def test_topology_rides_to_every_operator_but_the_last() -> None:
    engine = LocalEngine(GraphSAGE([2, 2, 2], seed=1), 2)
    blocks = sent(engine, [edge(1, 2), edge(2, 3), edge(3, 3)])
    names = ["vertex-0", "edge-1", "vertex-1", "edge-2"]
    counts = [
        {kind: sum(len(b) for name, b in blocks if name == n and b.kind is kind) for kind in TOPOLOGY}
        for n in names
    ]
    assert counts[0][Kind.ADDS] == 3
    assert all(count == counts[0] for count in counts)
    assert {block.kind for name, block in blocks if name == "vertex-2"} == {Kind.OUTPUT}


def test_pulling_gives_what_pushing_gives_and_says_when_it_is_whole() -> None:
    schema = GraphSchema(features={"x": 3})
    tables, full = [], []
    for pulls in (False, True):
        engine = LocalEngine(GraphSAGE([3, 4, 2], seed=1), 2, schema=schema)
        with patch.object(edge_operator, "prefers_pull", lambda *_, pulls=pulls: pulls):
            blocks = sent(engine, [edge(i % 5, i % 7, time=i) for i in range(40)])
            for batch in random_batches(schema, seed=9, n_batches=6, batch_size=50, n_vertices=20):
                engine.apply(batch)
        tables.append(dict(zip(engine.ids().to_list(), engine.embeddings(), strict=True)))
        full.append(any(block.full for _, block in blocks))
    assert full == [False, True]
    for id, expected in tables[0].items():
        np.testing.assert_allclose(tables[1][id], expected, rtol=1e-5, atol=1e-6)


def test_blocks_go_where_they_say_and_from_whom_they_say() -> None:
    engine = LocalEngine(GraphSAGE([2, 2], seed=1), 3, "random")
    events = EventBatch.of([edge(i, j) for i in range(6) for j in range(6)])
    result = engine.partition.process(events, 1)
    assert {block.target for block in result.blocks} == {0, 1, 2}
    with torch.inference_mode():
        for part in range(3):
            out = engine.vertices[0].process(part, [b for b in result.blocks if b.target == part])
            made = [block for block in out if block.kind not in TOPOLOGY]
            assert {block.source for block in made} <= {part}
            assert {block.target for block in made} <= {0, 1, 2}
            for same in by_kind(made):
                keys = [(block.target, block.sequence) for block in same]
                assert len(set(keys)) == len(keys), "a receiver could not tell their order"


def test_the_order_in_which_blocks_arrive_leaves_no_trace() -> None:
    """The same to the last bit, and in the same order: a retried task gives what the first one gave."""
    schema = GraphSchema(features={"x": 3})
    seen = []
    for seed in range(3):
        engine = PackingEngine(GraphSAGE([3, 6, 4], seed=2), 3, schema=schema)
        engine.shuffle = random.Random(seed)
        updates = [
            engine.apply(batch, clock=1)
            for batch in random_batches(schema, seed=7, n_batches=6, batch_size=80, n_vertices=30)
        ]
        seen.append([(u.ids.to_list(), u.embedding.tobytes()) for u in updates])
    assert seen[1] == seen[0]
    assert seen[2] == seen[0]


@pytest.mark.parametrize("mapped", [False, True])
def test_no_array_falls_behind_those_that_it_shares_rows_with(
    mapped: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large arrays grow by less than small ones: sums were written past their end (a crash at 11M edges)."""
    monkeypatch.setattr(arrays, "_LARGE", 2**14)
    stream = SyntheticStream(6000, vertices=3000, feature_width=4, feature_updates=0.1)
    engine = LocalEngine(
        GraphSAGE([4, 8, 4], seed=0), 2, schema=stream.schema, folder=tmp_path if mapped else None
    )
    for batch in stream.batches(50):
        engine.apply(batch)
        for part in range(2):
            for operator in engine.edges:
                state = operator.state(part)
                lengths = {len(a.data) for a in (state.values, state.sums, state.count, state.master)}
                assert len(lengths) == 1
            for masters in engine.vertices:
                rows = masters.state(part).rows
                assert {len(column) for column in rows if column.shape[1:] != (0,)} == {len(rows.slot)}
                _, partial, sums = masters.state(part).partials
                assert sums.shape[1:] == (0,) or len(partial) == len(sums)
    assert compare(engine, stream.batches(50)).max_relative_error < TOLERANCE


def test_a_state_that_is_opened_again_knows_its_rows(tmp_path: Path) -> None:
    first = VertexState(MappedSpace(tmp_path), 2, 1, 0)
    first.reserve_rows(1000)
    first.rows.value[999] = 7
    again = VertexState(MappedSpace(tmp_path), 2, 1, 0)  # which has nothing to grow
    assert again.rows.value[999].tolist() == [7, 7]
    assert len(again.touched) > 999
