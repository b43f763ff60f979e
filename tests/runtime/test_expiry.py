"""With lifetimes, embeddings are those of the graph of unexpired edges after every batch."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from d3gnn import GraphSchema, LocalEngine
from d3gnn.events import EventBatch, edge, feature, vertex
from d3gnn.nn import GCN, GraphSAGE
from d3gnn.testing import OracleChecker, event_batches, schemas
from d3gnn.windows import Tumbling

EXPIRING = schemas(edges=("simple", "multi", "keyed"), width=2, edge_features=False, expiry=True)
MODELS = {
    "sage": GraphSAGE(2, 4, 2, 3, seed=0),
    "max": GraphSAGE(2, 4, 2, 3, aggr="max", seed=0),
    "gcn": GCN(2, 4, 2, 3, seed=0),
}
#: Edges, and how many lifetimes their times span.
EDGES, LIFETIMES = (5_000_000 if "D3GNN_THOROUGH" in os.environ else 200_000), 5


@settings(max_examples=60)
@given(data=st.data())
def test_streams_equal_the_oracle_on_the_graph_of_unexpired_edges(data: st.DataObject) -> None:
    schema = data.draw(EXPIRING, "schema")
    model = MODELS[data.draw(st.sampled_from(sorted(MODELS)), "model")]
    checker = OracleChecker(LocalEngine(model, parts=data.draw(st.integers(1, 3), "parts"), schema=schema))
    for batch in data.draw(event_batches(schema, "str", n_vertices=4), "stream"):
        checker.apply(batch)
        if data.draw(st.booleans(), "refresh"):
            checker.refresh()


def test_tombstones_report_what_expired() -> None:
    checker = OracleChecker(LocalEngine(MODELS["sage"], schema=GraphSchema(ttl=10, vertex_ttl=10)))
    checker.apply([edge("ann", "bob", time=0), edge("bob", "cho", time=5)])
    updates = checker.apply([edge("cho", "dan", time=11)])
    found = {update.id: (update.deleted, update.time) for update in updates}
    assert found["ann"] == (True, 10)  # it expired then
    assert not found["bob"][0]
    assert updates.status.tolist() == [0]
    assert checker.engine.partition.metrics["expired"] == 2


def test_windows_merge_what_expires() -> None:
    schema = GraphSchema(ttl=10)
    checker = OracleChecker(LocalEngine(MODELS["sage"], parts=2, schema=schema, window=Tumbling(1.0)))
    for time in range(0, 40, 3):
        checker.apply([edge(time % 7, time % 5, time=time), feature(time % 7, [time, 1.0], time=time)])
    checker.drain(clock=10)


def test_an_idle_stream_expires_by_the_clock_of_its_batches() -> None:
    checker = OracleChecker(LocalEngine(MODELS["sage"], schema=GraphSchema(ttl=10, idle="1ms")))
    checker.apply([edge(1, 2, time=5000)], clock=5000)
    checker.apply([], clock=6010)
    assert checker.oracle.edges() == [(1, 2)]
    checker.apply([], clock=6011)
    assert checker.oracle.edges() == []


@pytest.mark.parametrize("refresh", [False, True])
def test_a_saved_engine_goes_on_in_the_same_way(tmp_path: Path, refresh: bool) -> None:
    schema = GraphSchema(edges="multi", ttl=10, vertex_ttl=12, edge_features={"w": 1}, features={"x": 2})
    checker = OracleChecker(LocalEngine(MODELS["sage"], parts=2, schema=schema))
    checker.apply(
        [edge(1, 2, [1.0], time=0), edge(1, 2, time=4), edge(1, 2, time=8, ttl=3), edge(3, 4, time=9)]
    )
    checker.apply([vertex(9, time=10)])
    if refresh:
        checker.refresh()
    checker.engine.save(tmp_path)
    checker.engine = LocalEngine.load(tmp_path)
    # Late by the newest time before it was saved; expires by lifetimes from before.
    checker.apply([edge(5, 6, time=-1), edge(5, 7, time=0), vertex(9, time=11)])
    for time in (12, 14, 15, 19, 22, 30):
        checker.apply([vertex(9, time=time)])
    assert checker.oracle.vertices == [9]


def test_memory_is_flat_over_many_lifetimes() -> None:
    ttl, batch, rng = EDGES // LIFETIMES, EDGES // 100, np.random.default_rng(0)
    schema: Any = GraphSchema(edges="multi", ttl=ttl, features={"x": 2})
    engine = LocalEngine(GraphSAGE(2, 4, 1, 2, seed=0), schema=schema)
    sizes = []
    for begin in range(0, EDGES, batch):
        src, dst = rng.integers(0, EDGES // 50, (2, batch))
        engine.apply(EventBatch.edges(src, dst, time=np.arange(begin, begin + batch)))
        if begin % ttl == 0:
            sizes.append(sum(engine.memory().values()))
    assert engine.partition.metrics["expired"] == EDGES - ttl - 1
    # Vertices keep the room of their most edges ever, so that it still grows a little.
    assert max(sizes[2:]) <= 1.1 * sizes[2], sizes
    assert engine._coordinator._log.rows <= max(100_000, 4 * ttl)
