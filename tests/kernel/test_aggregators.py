"""Sum and mean: tests beyond the contract of all aggregators (see `contracts`)."""

from __future__ import annotations

import numpy as np
import pytest

from d3gnn import GraphSchema, LocalEngine
from d3gnn.events import delete_edge, edge, feature
from d3gnn.kernel.aggregators import Mean, Sum, aggregator_types
from d3gnn.kernel.aggregators.base import aggregator_type
from d3gnn.nn import GraphSAGE
from d3gnn.testing import OracleChecker


def test_aggregators_are_found_by_name() -> None:
    assert aggregator_type("sum") is Sum
    assert aggregator_type("mean") is Mean
    assert [a.name for a in aggregator_types()] == sorted(a.name for a in aggregator_types())


def test_unknown_aggregators_are_refused() -> None:
    with pytest.raises(
        ValueError,
        match=r"unknown aggregator 'median': choose one of attention, degrees, max, mean, min, sum",
    ):
        aggregator_type("median")


@pytest.mark.parametrize("name", ["sum", "mean"])
def test_a_retracted_large_message_leaves_no_error(name: str) -> None:
    """float32 sums would lose the small messages."""
    engine = LocalEngine(GraphSAGE(1, 1, 1, aggr=name, seed=1), schema=GraphSchema(features={"x": 1}))
    checker = OracleChecker(engine)
    small = [feature(i, [0.3 + i / 7]) for i in range(5)]
    checker.apply(small + [edge(i, 9) for i in range(5)])
    before = engine.embeddings([9])
    for _ in range(20):
        checker.engine.apply([feature(8, [3e8]), edge(8, 9)])
        checker.engine.apply([delete_edge(8, 9)])
    np.testing.assert_allclose(engine.embeddings([9]), before, rtol=1e-5)


@pytest.mark.parametrize("name", ["sum", "mean"])
def test_a_vertex_without_its_last_edge_equals_one_that_never_had_edges(name: str) -> None:
    engine = LocalEngine(GraphSAGE(2, 4, 2, 3, aggr=name, seed=1))
    checker = OracleChecker(engine)
    checker.apply([edge(1, 2)])
    checker.apply([delete_edge(1, 2)])
    fresh = LocalEngine(engine.model)
    fresh.apply([edge(2, 3)])
    assert (engine.embeddings([2]) == fresh.embeddings([2])).all()
