"""Vertices that carry their neighbourhood: the same events from rows and tables."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from d3gnn import GraphSchema, LocalEngine
from d3gnn.events import EventBatch, edge, feature, vertex
from d3gnn.nn import GraphSAGE
from d3gnn.testing import OracleChecker

EXPECTED = [vertex("a", time=1), vertex("b", [1.0], time=2), edge("b", "a", time=2), edge("b", "c", time=2)]


def listed(batch: EventBatch) -> list[str]:
    return [str(batch.row(i)) for i in range(len(batch))]


def test_a_vertex_is_followed_by_its_edges() -> None:
    rows = [vertex("a", time=1, neighbours=[]), vertex("b", [1.0], time=2, neighbours=["a", "c"])]
    assert str(rows[1]) == "create vertex b x=[1.0] -> a, c at 2"
    assert listed(EventBatch.of(rows)) == [*map(str, EXPECTED)]


@pytest.mark.parametrize("more", [{}, {"element": ["vertex", None]}, {"op": [None, "create"]}])
def test_tables_have_a_column_of_neighbours(more: dict[str, Any]) -> None:
    table = pa.table(
        {"src": ["a", "b"], "time": [1, 2], "value": [None, [1.0]], "neighbours": [None, ["a", "c"]], **more}
    )
    assert listed(EventBatch.of(table)) == [*map(str, EXPECTED)]


def test_edges_may_be_beside_vertices() -> None:
    table = pa.table(
        {
            "src": [1, 2, 3],
            "dst": [None, None, 7],
            "element": ["vertex", "vertex", None],
            "neighbours": [[], [1, 5], None],
            "time": [3, 4, 5],
        }
    )
    expected = [
        vertex(1, time=3),
        vertex(2, time=4),
        edge(2, 1, time=4),
        edge(2, 5, time=4),
        edge(3, 7, time=5),
    ]
    assert listed(EventBatch.of(table)) == [*map(str, expected)]


def test_only_new_vertices_have_neighbours() -> None:
    with pytest.raises(ValueError, match="delete vertex with neighbours: only the event that creates"):
        EventBatch.of([vertex(1)._replace(op="delete", neighbours=[2])])
    with pytest.raises(ValueError, match="create edge with neighbours"):
        EventBatch.of(pa.table({"src": [1], "dst": [2], "neighbours": [[3]]}))
    assert len(EventBatch.of([feature(1, [1.0])._replace(neighbours=[2])])) == 2


@pytest.mark.parametrize("which", ["fennel", "hdrf"])
def test_vertex_streams_are_exact(which: str) -> None:
    schema = GraphSchema(features={"x": 2}, missing="hash")
    checker = OracleChecker(
        LocalEngine(GraphSAGE(2, 4, 2, 2, seed=1), parts=3, partitioner=which, schema=schema)
    )
    for first in range(0, 60, 20):
        rows = [
            vertex(v, [float(v), 1.0], time=v, neighbours=[w for w in (v // 2, v // 3, v) if w])
            for v in range(first, first + 20)
        ]
        checker.apply(EventBatch.of(rows))
    checker.refresh()
