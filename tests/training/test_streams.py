"""Training reads the graph of any stream, with deletes, repeats and late events, out of any engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

from d3gnn import GraphSchema, LocalEngine, Training, windows
from d3gnn.events import edge, label
from d3gnn.nn import GNN, Classifier, GATv2Conv, GCNConv, GraphConv, GraphSAGE
from d3gnn.oracle import Oracle, embeddings, relative_error
from d3gnn.testing import event_batches, random_batches
from d3gnn.testing.streams import positive
from d3gnn.training.forward import forward
from d3gnn.training.rank_graph import RankGraph
from d3gnn.training.ranks import OneRank


def assert_same(engine: LocalEngine, oracle: Oracle) -> None:
    """The forward pass over the parts equals the static one over the oracle's graph."""
    live = engine.live_graph()
    graph = RankGraph([live.part(part) for part in range(engine.parts)], OneRank())
    ids = engine.partition.ids.keys.take(live.codes()).to_list()
    expected = embeddings(engine.trainable, oracle)
    assert set(ids) == set(expected)
    if ids:
        with torch.no_grad():
            got = forward(engine.trainable, graph).numpy()
        wanted = torch.tensor([expected[id].tolist() for id in ids if id is not None]).numpy()
        assert relative_error(got, wanted) <= 1e-5


@settings(max_examples=25)
@given(data=st.data())
def test_any_stream(data: st.DataObject) -> None:
    edges: Any = data.draw(st.sampled_from(["simple", "multi", "keyed", "append"]), "edges")
    features = {} if edges == "append" else {"w": 1}
    directed = data.draw(st.booleans(), "directed")
    schema = GraphSchema(
        edges=edges, directed=directed, features={"x": 2}, edge_features=features, missing="hash"
    )
    torch.manual_seed(0)
    weighted = bool(features)
    layers = [GCNConv(2, 4, edge_weight=weighted), GraphConv(4, 4, "max", edge_weight=weighted)]
    model = GNN([*layers, GATv2Conv(4, 2, edge_dim=1 if weighted else None)])
    engine = LocalEngine(model, parts=data.draw(st.integers(1, 3), "parts"), schema=schema)
    oracle = Oracle(engine.schema)
    for batch in data.draw(event_batches(engine.schema, "int"), "batches"):
        events = positive(batch)
        engine.apply(events, clock=1)
        oracle.apply(events, 1)
        assert_same(engine, oracle)


def test_the_first_edge_keeps_its_features() -> None:
    """Records of the edge table that were never used look like edges of the first vertex."""
    schema = GraphSchema(features={"x": 2}, edge_features={"w": 1}, missing="hash")
    engine = LocalEngine(GNN([GraphConv(2, 2, edge_weight=True)]), schema=schema)
    oracle = Oracle(engine.schema)
    batch = [edge(0, 0, [0.5], time=0), edge(1, 0, [0.7], time=0)]
    engine.apply(batch, clock=1)
    oracle.apply(batch, 1)
    assert_same(engine, oracle)


@pytest.mark.parametrize("how", ["threads", "arrays", "window"])
def test_any_engine(how: str, tmp_path: Path) -> None:
    choices: dict[str, dict[str, Any]] = {
        "threads": {"threads": 2},
        "arrays": {"arrays": tmp_path / "arrays"},
        "window": {"window": windows.Tumbling(3600.0)},
    }
    schema = GraphSchema(features={"x": 3}, missing="hash")
    model = GraphSAGE(3, 8, 2, 3, seed=1, head=Classifier())
    engine, oracle = LocalEngine(model, parts=4, schema=schema, **choices[how]), Oracle(schema)
    for batch in random_batches(schema, seed=2, n_batches=4, batch_size=300, n_vertices=60):
        engine.apply(batch, clock=1)
        oracle.apply(batch, 1)
    labels = [label(i, i % 3, time=10**6) for i in range(60)]
    engine.apply(labels, clock=1)
    oracle.apply(labels, 1)
    assert_same(engine, oracle)
    assert engine.train(Training(epochs=3, holdout=0.0)).used
    assert_same(engine, oracle)
    expected = embeddings(engine.trainable, oracle)
    wanted = torch.tensor([expected[id].tolist() for id in oracle.vertices]).numpy()
    assert relative_error(engine.embeddings(oracle.vertices), wanted) <= 1e-5
    assert not any(engine.pending().values()), "a refresh drains windows"


def test_an_engine_that_was_saved_is_trained_further(tmp_path: Path) -> None:
    schema = GraphSchema(features={"x": 3}, missing="hash")
    engine = LocalEngine(GraphSAGE(3, 8, 2, 3, seed=1, head=Classifier()), parts=2, schema=schema)
    for batch in random_batches(schema, seed=2, n_batches=2, batch_size=100, n_vertices=30):
        engine.apply(batch, clock=1)
    engine.apply([label(i, i % 3, time=10**6) for i in range(30)], clock=1)
    training = Training(epochs=3, holdout=0.0)
    engine.train(training)
    engine.save(tmp_path)
    loaded = LocalEngine.load(tmp_path)
    assert loaded.trainable.digest == engine.trainable.digest
    engine.train(training)
    loaded.train(training)
    for key, weight in engine.trainable.state_dict().items():
        torch.testing.assert_close(loaded.trainable.state_dict()[key], weight, rtol=1e-4, atol=1e-5)
