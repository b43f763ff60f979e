"""The local engine equals recomputation from scratch, whatever the events."""

from __future__ import annotations

import tempfile
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import patch

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch import nn

from d3gnn import GraphSchema, LocalEngine, events
from d3gnn.events import Event
from d3gnn.kernel.operators import edge as edge_operator
from d3gnn.kernel.operators.layer_step import LayerStep
from d3gnn.nn import GCN, GNN, Classifier, GraphSAGE, SAGEConv
from d3gnn.nn.models import sage_from_widths
from d3gnn.oracle import Oracle, relative_error
from d3gnn.testing import OracleChecker, event_batches, random_batches, schemas

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
    model = sage_from_widths(
        data.draw(widths(), "widths"), data.draw(st.sampled_from(["mean", "sum"]), "aggr"), seed=1
    )
    parts = data.draw(st.integers(1, 4), "parts")
    partitioner = data.draw(st.sampled_from(["random", "hdrf"]), "partitioner")
    mapped = data.draw(st.booleans(), "mapped")
    pulls = data.draw(st.sampled_from([None, True, False]), "pulls")
    refresh_after = data.draw(st.integers(0, 2 * len(batches)), "refresh after")
    forced = nullcontext() if pulls is None else patch.object(edge_operator, "prefers_pull", lambda *_: pulls)
    # Small batches of one part take one call for each layer, unless pulls are forced.
    one_by_one = nullcontext() if pulls is None else patch.object(LayerStep, "of", lambda *_: None)
    with tempfile.TemporaryDirectory() as folder, forced, one_by_one:
        engine = LocalEngine(
            model, parts=parts, partitioner=partitioner, schema=schema, arrays=folder if mapped else None
        )
        checker = OracleChecker(engine)
        for i, batch in enumerate(batches):
            checker.apply(batch)
            if i == refresh_after:
                checker.refresh()


@pytest.mark.parametrize("edges", ["simple", "multi", "keyed", "append"])
@pytest.mark.parametrize("parts", [1, 3])
def test_equals_the_oracle_on_longer_streams(edges: events.EdgeMode, parts: int, tmp_path: Path) -> None:
    schema = GraphSchema(edges=edges, directed=parts == 1, features={"x": IN_WIDTH})
    engine = LocalEngine(GraphSAGE(IN_WIDTH, 8, 2, 4, seed=2), parts=parts, schema=schema)
    checker = OracleChecker(engine)
    for i, batch in enumerate(random_batches(schema, seed=5, n_batches=25, batch_size=60, n_vertices=40)):
        checker.apply(batch)
        if i == 15:
            checker.refresh()
    engine.save(tmp_path)
    loaded = LocalEngine.load(tmp_path)
    ids = engine.ids()
    assert relative_error(loaded.embeddings(ids), engine.embeddings(ids)) < 1e-5
    assert (loaded.batch, loaded.parts, loaded.schema) == (engine.batch + 1, parts, schema)
    after = OracleChecker(loaded)
    after.oracle, after.table = checker.oracle, checker.table
    for batch in random_batches(schema, seed=6, n_batches=5, batch_size=60, n_vertices=40):
        after.apply(batch)


def test_a_vertex_that_is_created_as_a_destination_can_be_deleted_in_the_same_batch() -> None:
    checker = OracleChecker(LocalEngine(GraphSAGE(IN_WIDTH, 2, 1, seed=1)))
    checker.apply([events.edge(1, 0, time=0), events.delete_vertex(0, time=0)])
    assert checker.engine.ids().to_list() == [1]


def test_events_of_a_batch_apply_in_order_of_time_not_of_rows() -> None:
    checker = OracleChecker(LocalEngine(GraphSAGE(IN_WIDTH, 2, 1, seed=1)))
    updates = checker.apply([events.delete_edge(0, 0, time=0), events.edge(0, 0, time=-1)])
    assert updates.status.tolist() == [0, 0]


@pytest.mark.parametrize("parts", [1, 3])
def test_an_undirected_loop_is_one_edge_in_creates_and_deletes(parts: int) -> None:
    schema = GraphSchema(directed=False)
    model = GraphSAGE(IN_WIDTH, 4, 2, 2, aggr="sum", seed=1)
    checker = OracleChecker(LocalEngine(model, parts=parts, schema=schema))
    checker.apply([events.edge(0, 0, time=0), events.edge(0, 1, time=0), events.edge(1, 1, time=0)])
    checker.apply([events.delete_edge(0, 0, time=1)])
    checker.apply([events.edge(2, 2, time=2), events.delete_edge(1, 0, time=2)])
    checker.apply([events.delete_vertex(1, time=3), events.edge(0, 0, time=3)])


def test_the_edge_table_is_rebuilt_by_a_refresh() -> None:
    checker = OracleChecker(LocalEngine(GraphSAGE(IN_WIDTH, 2, 1, seed=1), schema=GraphSchema(edges="multi")))
    checker.apply([events.edge(0, 1, time=0), events.edge(0, 1, time=1), events.edge(1, 2, time=1)])
    checker.refresh()
    checker.apply([events.delete_edge(0, 1, time=2), events.edge(2, 0, time=2), events.edge(3, 1, time=2)])


def test_a_batch_of_many_dead_letters_names_each() -> None:
    engine = LocalEngine(GraphSAGE(IN_WIDTH, 2, 1, seed=1))
    updates = engine.apply(events.EventBatch.edges([1, 2, 3], [4, 5, 6], op=events.Op.DELETE))
    assert [letter.event.src for letter in updates.dead_letters] == [1, 2, 3]
    assert {letter.reason for letter in updates.dead_letters} == {"the edge does not exist"}


def test_output_rows_have_the_times_of_their_causes() -> None:
    engine = LocalEngine(GraphSAGE(IN_WIDTH, 4, 2, 2, seed=1), parts=2)
    engine.apply([events.edge(1, 2, time=10), events.edge(2, 3, time=20)], clock=100)
    late = Event("create", "edge", 0, 1, time=15, arrival=40)
    both = engine.apply([late, events.feature(9, [0.0] * IN_WIDTH, time=30)], clock=200)
    causes = {update.id: (update.time, update.arrival) for update in both}
    # 1 gets a new neighbour, 2 depends on 1, 9 is new, 3 is not reached.
    assert causes == {0: (15, 40), 1: (15, 40), 2: (15, 40), 9: (30, 200)}


def test_min_change_stops_small_changes() -> None:
    model, min_change = GraphSAGE(4, 8, 3, 4, seed=3), 0.02
    exact, rough = LocalEngine(model, parts=2), LocalEngine(model, parts=2, min_change=min_change)
    schema = exact.schema
    for batch in random_batches(schema, seed=7, n_batches=30, batch_size=40, n_vertices=60):
        for engine in (exact, rough):
            engine.apply(batch)
    ids = exact.ids()
    off = np.abs(rough.embeddings(ids) - exact.embeddings(ids)).max()
    layers = [layer for layer in model.layers if isinstance(layer, SAGEConv)]
    sums = [layer.lin_l.weight.abs().sum(1) + layer.lin_r.weight.abs().sum(1) for layer in layers]
    c2, c3 = (each.max().item() for each in sums[1:])
    assert 0 < off <= min_change * (1 + c3 * (1 + c2)), "the bound in docs/layers.md"
    sent = [sum(edge.metrics["messages"] for edge in engine.edges) for engine in (exact, rough)]
    assert sent[1] < 0.95 * sent[0]
    rough.refresh()
    np.testing.assert_allclose(rough.embeddings(ids), exact.embeddings(ids), rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match=r"0 \(exact\)"):
        LocalEngine(model, min_change=-1)


def test_a_saved_engine_keeps_its_min_change(tmp_path: Path) -> None:
    LocalEngine(GraphSAGE(2, 2, 1), min_change=0.5).save(tmp_path)
    assert LocalEngine.load(tmp_path).config.min_change == 0.5


def test_an_engine_without_a_graph_is_saved_over_one_with_one(tmp_path: Path) -> None:
    engine = LocalEngine(GraphSAGE(2, 2, 1))
    engine.apply([events.edge("a", "b", time=1)])
    engine.save(tmp_path)
    LocalEngine(GraphSAGE(2, 2, 1)).save(tmp_path)
    assert len(LocalEngine.load(tmp_path)) == 0


@pytest.mark.parametrize("parts", [1, 3])
def test_inputs_are_features_or_initial_values(parts: int) -> None:
    schema = GraphSchema(features={"x": 2, "y": 1})
    for model in (GraphSAGE(3, 4, 2, 2, seed=1), GCN(3, 4, 2, 2, seed=1)):
        engine, oracle = LocalEngine(model, parts=parts, schema=schema), Oracle(schema)
        assert engine.inputs().shape == (0, 3)
        batch = [events.edge("a", "b", time=1), events.feature("b", [5.0, 6.0], name="x", time=1)]
        for each in (batch, [events.feature("c", [7.0], name="y", time=2)]):
            engine.apply(each)
            oracle.apply(each)
        inputs = engine.inputs(oracle.vertices)
        np.testing.assert_array_equal(inputs, oracle.inputs())
        assert inputs.dtype == np.float32
        np.testing.assert_array_equal(engine.inputs(["b", "unknown"])[0, :2], [5.0, 6.0])
        assert np.isnan(engine.inputs(["b", "unknown"])[1]).all()
        assert engine.inputs().shape == (3, 3)


def test_a_model_is_not_changed_by_an_engine() -> None:
    model = GNN([SAGEConv(3, 4, act="relu"), SAGEConv(4, 2)], Classifier(nn.Linear(2, 2)))
    engine = LocalEngine(model)
    assert model.training
    assert all(module.training for module in model.modules())
    assert all(weight.requires_grad for weight in model.parameters())
    assert all(layer.affine is None for layer in model.layers)
    engine.apply([events.edge(1, 2, time=1)])
    before = engine.embeddings([1, 2])
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(1.0)
    engine.refresh()
    np.testing.assert_array_equal(engine.embeddings([1, 2]), before)
    changed = LocalEngine(model)
    changed.apply([events.edge(1, 2, time=1)])
    assert not np.allclose(changed.embeddings([1, 2]), before)


def test_a_single_id_is_refused() -> None:
    engine = LocalEngine(GraphSAGE(2, 2, 1))
    engine.apply([events.edge("ann", "bob")])
    with pytest.raises(TypeError, match=r"ids='ann': give a list of ids, as in \['ann'\]"):
        engine.embeddings("ann")
