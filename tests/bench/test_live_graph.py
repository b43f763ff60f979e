"""LiveGraph equals the graph of the oracle after every batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from d3gnn.bench.live_graph import Change, LiveGraph
from d3gnn.events import EdgeMode, Event, EventBatch, GraphSchema, Key, delete_vertex, edge
from d3gnn.oracle import Oracle
from d3gnn.sources import SyntheticStream
from d3gnn.testing import event_batches, random_batches, schemas
from d3gnn.testing.streams import Ids
from d3gnn.types import Ints

MODES = tuple(mode for mode in get_args(EdgeMode) if mode != "keyed")


def pairs(src: Ints, dst: Ints) -> Counter[tuple[int, int]]:
    return Counter(zip(src.tolist(), dst.tolist(), strict=True))


def check(schema: GraphSchema, batches: Iterable[EventBatch | list[Event]]) -> LiveGraph:
    """Apply the batches to both; graphs and changes must agree after each batch."""
    graph, oracle = LiveGraph(schema), Oracle(schema)
    for events in batches:
        batch = EventBatch.of(events)
        edges, inputs = pairs(graph.src, graph.dst), graph.inputs.copy()
        oracle.apply(batch)
        change = graph.apply(batch)
        ids: list[Key] = oracle.vertices
        assert graph.keys().to_list() == ids
        assert len(graph) == len(ids)
        assert pairs(graph.src, graph.dst) == pairs(*oracle.edge_index())
        np.testing.assert_array_equal(graph.inputs, oracle.inputs())
        check_change(change, edges, pairs(graph.src, graph.dst))
        assert change.vertices_before == len(inputs)
        same = (graph.inputs[: len(inputs)] == inputs).all(axis=1)
        expected = [*np.flatnonzero(~same).tolist(), *range(len(inputs), len(graph))]
        assert change.inputs.tolist() == expected
    return graph


def check_change(change: Change, before: Counter[tuple[int, int]], after: Counter[tuple[int, int]]) -> None:
    assert pairs(change.added_src, change.added_dst) == after - before
    assert pairs(change.removed_src, change.removed_dst) == before - after
    assert pairs(change.sources, change.targets) == (after - before) + (before - after)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("undirected", [False, True])
def test_a_stream_with_every_kind_of_event(mode: EdgeMode, undirected: bool) -> None:
    stream = SyntheticStream(
        1500, vertices=60, deletes=0.4, feature_updates=0.2, bad=0.1, late=0.2, feature_width=3,
        features=True, undirected=undirected,
    )  # fmt: skip
    check(replace(stream.schema, edges=mode), stream.batches(100))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("ids", ["int", "str"])
def test_many_changes_on_a_small_graph(mode: EdgeMode, directed: bool, ids: Ids) -> None:
    schema = GraphSchema(mode, directed, {"x": 2, "y": 1})
    batches = random_batches(schema, 3, 12, 80, 12, ids=ids, delete=0.4, delete_vertex=0.0)
    check(schema, batches)


@pytest.mark.parametrize("ids", ["int", "str"])
@given(data=st.data())
def test_generated_events(ids: Ids, data: st.DataObject) -> None:
    schema = data.draw(schemas(edges=MODES, edge_features=False))
    batches = data.draw(event_batches(schema, ids))
    check(schema, [[e for e in batch if (e.op, e.element) != ("delete", "vertex")] for batch in batches])


@pytest.mark.parametrize("mode", MODES)
def test_batches_of_edge_creations_only(mode: EdgeMode) -> None:
    """The fast path for batches that only create edges gives the same graph as the general path."""
    schema = GraphSchema(mode, features={"x": 2})
    graph = check(schema, SyntheticStream(500, vertices=50).batches(90))
    assert (graph.edge_count == 500) is (mode != "simple")


def test_an_edge_created_and_deleted_in_one_batch_is_no_change() -> None:
    graph = LiveGraph(GraphSchema("multi"))
    graph.apply(EventBatch.of([edge(1, 2), edge(1, 2)]))
    change = graph.apply(EventBatch.of([edge(1, 2, time=1), Event("delete", "edge", 1, 2, time=2)]))
    assert len(change.sources) == len(change.targets) == len(change.inputs) == 0
    assert graph.edge_count == 2


def test_unsupported_events_and_schemas_are_refused() -> None:
    graph = LiveGraph(GraphSchema())
    graph.apply(
        EventBatch.of([delete_vertex(7), edge(1, 2, time=1)])
    )  # there is no such vertex: a dead letter
    with pytest.raises(ValueError, match="delete vertex 2 at 5: peers support no vertex deletes"):
        graph.apply(EventBatch.of([edge(1, 3, time=4), delete_vertex(2, time=5)]))
    with pytest.raises(ValueError, match="no keyed edges"):
        LiveGraph(GraphSchema("keyed"))
    with pytest.raises(ValueError, match="no edge features"):
        LiveGraph(GraphSchema(edge_features={"w": 1}))


def test_an_empty_graph() -> None:
    graph = check(GraphSchema(), [EventBatch.of([])])
    assert (len(graph), graph.edge_count, graph.keys().to_list()) == (0, 0, [])
