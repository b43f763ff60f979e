"""Sum and mean, where their contract with all others (see `contracts`) leaves something to say."""

from __future__ import annotations

import numpy as np
import pytest

from d3gnn import GraphSchema, LocalEngine
from d3gnn.events import delete_edge, edge, feature
from d3gnn.kernel.aggregators import Mean, Sum, aggregator, aggregator_types
from d3gnn.nn import GraphSAGE
from d3gnn.testing import Witness


def test_they_are_found_by_name() -> None:
    assert isinstance(aggregator("sum"), Sum)
    assert isinstance(aggregator("mean"), Mean)
    assert [a.name for a in aggregator_types()] == sorted(a.name for a in aggregator_types())


def test_unknown_ones_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"no aggregator 'median'; known are attention, degrees, max, mean, min, sum"
    ):
        aggregator("median")


@pytest.mark.parametrize("name", ["sum", "mean"])
def test_a_large_message_leaves_no_trace(name: str) -> None:
    """float32 sums would lose the small ones beside it."""
    engine = LocalEngine(GraphSAGE([1, 1], name, seed=1), schema=GraphSchema(features={"x": 1}))
    witness = Witness(engine)
    small = [feature(i, [0.3 + i / 7]) for i in range(5)]
    witness.apply(small + [edge(i, 9) for i in range(5)])
    before = engine.embeddings([9])
    for _ in range(20):
        witness.engine.apply([feature(8, [3e8]), edge(8, 9)])
        witness.engine.apply([delete_edge(8, 9)])
    np.testing.assert_allclose(engine.embeddings([9]), before, rtol=1e-5)


@pytest.mark.parametrize("name", ["sum", "mean"])
def test_a_vertex_whose_last_edge_went_is_as_if_it_never_had_one(name: str) -> None:
    engine = LocalEngine(GraphSAGE([2, 4, 3], name, seed=1))
    witness = Witness(engine)
    witness.apply([edge(1, 2)])
    witness.apply([delete_edge(1, 2)])
    fresh = LocalEngine(engine.model)
    fresh.apply([edge(2, 3)])
    assert (engine.embeddings([2]) == fresh.embeddings([2])).all()
