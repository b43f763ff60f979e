"""The local engine equals recomputation from scratch, whatever the events."""

from __future__ import annotations

import tempfile
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import patch

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from d3gnn import GraphSchema, LocalEngine, events
from d3gnn.kernel.operators import edge as edge_operator
from d3gnn.kernel.reference import relative_error
from d3gnn.nn import GraphSAGE
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
