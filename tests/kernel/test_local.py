"""The local engine equals recomputation from scratch, whatever the events."""

from __future__ import annotations

import tempfile
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import patch

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from d3gnn import GraphSchema, LocalEngine, events
from d3gnn.events import Event
from d3gnn.kernel.operators import edge as edge_operator
from d3gnn.kernel.reference import relative_error
from d3gnn.nn import SAGE, GraphSAGE
from d3gnn.testing import Witness, event_batches, random_batches, schemas

IN_WIDTH = 3


@st.composite
def widths(draw: st.DrawFn) -> list[int]:
    """One to three layers, some narrowing and some widening."""
    return [IN_WIDTH, *draw(st.lists(st.sampled_from([2, 4]), min_size=1, max_size=3))]


@settings(max_examples=250)
@given(data=st.data())
def test_equals_the_oracle_after_every_batch(data: st.DataObject) -> None:
    schema = data.draw(schemas(width=IN_WIDTH), "schema")
    batches = data.draw(event_batches(schema, data.draw(st.sampled_from(["int", "str"]), "ids")), "batches")
    model = GraphSAGE(
        data.draw(widths(), "widths"), data.draw(st.sampled_from(["mean", "sum"]), "aggregator"), seed=1
    )
    parts = data.draw(st.integers(1, 4), "parts")
    partitioner = data.draw(st.sampled_from(["random", "hdrf"]), "partitioner")
    mapped = data.draw(st.booleans(), "mapped")
    pulls = data.draw(st.sampled_from([None, True, False]), "pulls")
    refresh_after = data.draw(st.integers(0, 2 * len(batches)), "refresh after")
    forced = nullcontext() if pulls is None else patch.object(edge_operator, "prefers_pull", lambda *_: pulls)
    with tempfile.TemporaryDirectory() as folder, forced:
        engine = LocalEngine(model, parts, partitioner, schema, folder if mapped else None)
        witness = Witness(engine)
        for i, batch in enumerate(batches):
            witness.apply(batch)
            if i == refresh_after:
                witness.refresh()


@pytest.mark.parametrize("edges", ["simple", "multi", "keyed", "append"])
@pytest.mark.parametrize("parts", [1, 3])
def test_equals_the_oracle_on_longer_streams(edges: events.EdgeMode, parts: int, tmp_path: Path) -> None:
    schema = GraphSchema(edges=edges, directed=parts == 1, features={"x": IN_WIDTH})
    engine = LocalEngine(GraphSAGE([IN_WIDTH, 8, 4], seed=2), parts, schema=schema)
    witness = Witness(engine)
    for i, batch in enumerate(random_batches(schema, seed=5, n_batches=25, batch_size=60, n_vertices=40)):
        witness.apply(batch)
        if i == 15:
            witness.refresh()
    engine.save(tmp_path)
    loaded = LocalEngine.load(tmp_path)
    ids = engine.ids()
    assert relative_error(loaded.embeddings(ids), engine.embeddings(ids)) < 1e-5
    assert (loaded.batch, loaded.parts, loaded.schema) == (engine.batch + 1, parts, schema)
    after = Witness(loaded)
    after.oracle, after.table = witness.oracle, witness.table
    for batch in random_batches(schema, seed=6, n_batches=5, batch_size=60, n_vertices=40):
        after.apply(batch)


def test_an_id_that_only_a_later_column_makes_known_can_be_deleted_in_its_batch() -> None:
    witness = Witness(LocalEngine(GraphSAGE([IN_WIDTH, 2], seed=1)))
    witness.apply([events.edge(1, 0, time=0), events.delete_vertex(0, time=0)])
    assert witness.engine.ids().to_list() == [1]


def test_events_of_a_batch_apply_in_order_of_time_not_of_rows() -> None:
    witness = Witness(LocalEngine(GraphSAGE([IN_WIDTH, 2], seed=1)))
    updates = witness.apply([events.delete_edge(0, 0, time=0), events.edge(0, 0, time=-1)])
    assert updates.status.tolist() == [0, 0]


@pytest.mark.parametrize("parts", [1, 3])
def test_an_undirected_loop_is_one_edge_when_it_comes_and_when_it_goes(parts: int) -> None:
    schema = GraphSchema(directed=False)
    witness = Witness(LocalEngine(GraphSAGE([IN_WIDTH, 4, 2], "sum", seed=1), parts, schema=schema))
    witness.apply([events.edge(0, 0, time=0), events.edge(0, 1, time=0), events.edge(1, 1, time=0)])
    witness.apply([events.delete_edge(0, 0, time=1)])
    witness.apply([events.edge(2, 2, time=2), events.delete_edge(1, 0, time=2)])
    witness.apply([events.delete_vertex(1, time=3), events.edge(0, 0, time=3)])


def test_the_edge_table_starts_afresh_after_a_refresh() -> None:
    witness = Witness(LocalEngine(GraphSAGE([IN_WIDTH, 2], seed=1), schema=GraphSchema(edges="multi")))
    witness.apply([events.edge(0, 1, time=0), events.edge(0, 1, time=1), events.edge(1, 2, time=1)])
    witness.refresh()
    witness.apply([events.delete_edge(0, 1, time=2), events.edge(2, 0, time=2), events.edge(3, 1, time=2)])


def test_a_batch_of_many_dead_letters_names_each() -> None:
    engine = LocalEngine(GraphSAGE([IN_WIDTH, 2], seed=1))
    updates = engine.apply(events.EventBatch.edges([1, 2, 3], [4, 5, 6], op=events.Op.DELETE))
    assert [letter.event.src for letter in updates.dead_letters] == [1, 2, 3]
    assert {letter.reason for letter in updates.dead_letters} == {"the edge does not exist"}


def test_causes_travel_with_the_cascade() -> None:
    engine = LocalEngine(GraphSAGE([IN_WIDTH, 4, 2], seed=1), parts=2)
    engine.apply([events.edge(1, 2, time=10), events.edge(2, 3, time=20)], clock=100)
    late = Event("create", "edge", 0, 1, time=15, arrival=40)
    both = engine.apply([late, events.feature(9, [0.0] * IN_WIDTH, time=30)], clock=200)
    causes = {update.id: (update.time, update.arrival) for update in both}
    # 1 gets a new neighbour, 2 sees 1 change; 9 is new; 3 is out of reach.
    assert causes == {0: (15, 40), 1: (15, 40), 2: (15, 40), 9: (30, 200)}


def test_small_changes_may_be_kept_from_travelling() -> None:
    model, epsilon = GraphSAGE([4, 8, 8, 4], seed=3), 0.02
    exact, rough = LocalEngine(model, 2), LocalEngine(model, 2, epsilon=epsilon)
    schema = exact.schema
    for batch in random_batches(schema, seed=7, n_batches=30, batch_size=40, n_vertices=60):
        for engine in (exact, rough):
            engine.apply(batch)
    ids = exact.ids()
    off = np.abs(rough.embeddings(ids) - exact.embeddings(ids)).max()
    layers = [layer for layer in model.layers if isinstance(layer, SAGE)]
    sums = [layer.lin_l.weight.abs().sum(1) + layer.lin_r.weight.abs().sum(1) for layer in layers]
    c2, c3 = (each.max().item() for each in sums[1:])
    assert 0 < off <= epsilon * (1 + c3 * (1 + c2)), "what docs/layers.md promises"
    sent = [sum(edge.metrics["messages"] for edge in engine.edges) for engine in (exact, rough)]
    assert sent[1] < 0.95 * sent[0]
    rough.refresh()
    np.testing.assert_allclose(rough.embeddings(ids), exact.embeddings(ids), rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="0, which is exact"):
        LocalEngine(model, epsilon=-1)


def test_an_engine_keeps_its_epsilon(tmp_path: Path) -> None:
    LocalEngine(GraphSAGE([2, 2]), epsilon=0.5).save(tmp_path)
    assert LocalEngine.load(tmp_path).epsilon == 0.5


def test_an_engine_without_a_graph_is_saved_over_one_with_one(tmp_path: Path) -> None:
    engine = LocalEngine(GraphSAGE([2, 2]))
    engine.apply([events.edge("a", "b", time=1)])
    engine.save(tmp_path)
    LocalEngine(GraphSAGE([2, 2])).save(tmp_path)
    assert len(LocalEngine.load(tmp_path)) == 0
