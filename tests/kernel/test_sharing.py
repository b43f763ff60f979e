"""Operators of one process share state, which changes no bit of what they emit, on any number of threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest

from d3gnn import GraphSchema, LocalEngine
from d3gnn.events import EdgeMode
from d3gnn.kernel.operators import OperatorId, Vertex, build_operator
from d3gnn.kernel.operators import edge as edge_operator
from d3gnn.kernel.operators.layer_step import LayerStep
from d3gnn.kernel.windows import Tumbling
from d3gnn.nn import GAT, GCN, GNN, GCNConv, GraphSAGE, LinkPredictor, SAGEConv
from d3gnn.runtime import chain
from d3gnn.testing import random_batches
from d3gnn.types import Array

MODELS: dict[str, Callable[[], GNN]] = {
    "sage": lambda: GraphSAGE(3, 5, 3, 4, seed=1),
    "gcn": lambda: GCN(3, 5, 2, 4, seed=1),
    "gat": lambda: GAT(3, 4, 2, 4, heads=2, seed=1),
    "pairs": lambda: GNN([SAGEConv(3, 4), GCNConv(4, 4, normalize=False)], head=LinkPredictor(edges=True)),
}
#: The rows of each batch with all columns, and the embeddings.
Emitted = list[Any]


def make(name: str, *, shared: bool = True, **settings: Any) -> LocalEngine:
    """An engine; without `shared`, each operator keeps all that it needs, as in several tasks."""
    edges: EdgeMode = "simple" if name == "pairs" else "multi"
    schema = GraphSchema(edges=edges, features={"x": 3}, edge_features={"w": 1})
    model = MODELS[name]()
    torch_seeded(model)
    with patch.object(LayerStep, "of", lambda *_: None):  # it never pulls
        engine = LocalEngine(model, schema=schema, **settings)
    if not shared:
        open_state = engine._state.open
        for lane in engine._chain.lanes:
            lane.operators[:] = [
                build_operator(id, engine.model, engine.config, open_state) for id in engine.chain.operators
            ]
        engine.vertices = [each for each in engine._chain.operators if isinstance(each, Vertex)]
    return engine


def torch_seeded(model: GNN) -> None:
    """The same weights for every engine."""
    for number, parameter in enumerate(model.parameters()):
        parameter.data = parameter.data.new_tensor(
            [((i * 37 + number * 11) % 23 - 11) / 16 for i in range(parameter.numel())]
        ).reshape(parameter.shape)


def run(engine: LocalEngine) -> Emitted:
    """All that an engine emits for a stream, and its embeddings at the end."""
    emitted: Emitted = []
    stream = random_batches(engine.schema, seed=6, n_batches=8, batch_size=80, n_vertices=25)
    for number, batch in enumerate(stream):
        updates = engine.apply(batch, clock=number * 400_000)
        columns: list[Array] = [updates.embedding, updates.time, updates.arrival, updates.deleted]
        # The order of rows depends on how many threads there are.
        rows = zip(updates.ids.to_list(), *columns, strict=True)
        emitted.append(sorted((id, *(value.tobytes() for value in row)) for id, *row in rows))
        if updates.pairs is not None:
            emitted.append(sorted((*pair[:2], pair[2].hex(), *pair[3:]) for pair in updates.pairs))
    engine.drain()
    return [*emitted, engine.embeddings().tobytes()]


@pytest.mark.parametrize("pulls", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_sharing_and_threads_change_no_bit(name: str, pulls: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain, "SMALLEST_PARALLEL", 0)
    monkeypatch.setattr(edge_operator, "prefers_pull", lambda *_: pulls)
    expected = run(make(name, shared=False, parts=4))
    for threads in (1, 2, 4):
        assert run(make(name, parts=4, threads=threads)) == expected
    assert run(make(name)) == run(make(name, shared=False))


@pytest.mark.parametrize("pair", [(Tumbling(1), None), (None, Tumbling(1)), (Tumbling(1), Tumbling(1))])
def test_sharing_changes_no_bit_under_windows(pair: Any) -> None:
    for parts in (1, 3):
        one, other = (make("sage", shared=shared, parts=parts, window=pair) for shared in (True, False))
        assert run(one) == run(other)


def test_one_part_keeps_edges_roots_and_partials_once() -> None:
    engine = make("sage")
    run(engine)
    names = {id: set(state._arrays) for (id, _), state in engine._state._opened.items()}
    assert [str(id) for id, arrays in names.items() if "out_pool" in arrays] == ["adjacency"]
    for layer, sends_input in ((1, True), (2, True), (3, False)):
        state = engine._state.open(OperatorId("vertex", layer), 0)
        assert state.array("partial_state", "f4").row_bytes == 0
        assert (state.array("root", "f4").row_bytes == 0) == sends_input
