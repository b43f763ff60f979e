"""A layer of a small batch in one call does what its two operators do one by one, bit for bit."""

from __future__ import annotations

from collections import Counter
from typing import Any
from unittest.mock import patch

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from d3gnn import GraphSchema, LocalEngine, events
from d3gnn.events import Event, EventBatch
from d3gnn.kernel.operators import layer_step
from d3gnn.kernel.operators.layer_step import LayerStep
from d3gnn.nn import GCN, GNN, GraphSAGE
from d3gnn.testing import OracleChecker, event_batches, random_batches, schemas
from d3gnn.windows import Tumbling


def make_model(aggr: str = "mean") -> GNN:
    return GraphSAGE(3, 4, num_layers=2, aggr=aggr, seed=0)


class Compared:
    """Two engines over the same batches: one takes them one by one, the other in one call for each layer."""

    def __init__(self, schema: GraphSchema, aggr: str = "mean") -> None:
        with patch.object(LayerStep, "of", lambda *_: None):
            self.one_by_one = LocalEngine(make_model(aggr), schema=schema)
        self.checker = OracleChecker(LocalEngine(make_model(aggr), schema=schema))
        #: How the calls ended: with this many changed masters, or why they did not.
        self.ends: Counter[int] = Counter()
        for layer in self.checker.engine._chain._layers:
            if layer is not None:
                self._count_ends(layer)

    def _count_ends(self, layer: LayerStep) -> None:
        step = layer._step

        def counted(*arguments: Any) -> int:
            end: int = step(*arguments)
            self.ends[min(end, 1)] += 1
            return end

        layer._step = counted

    def apply(self, batch: EventBatch | list[Event]) -> None:
        expected = self.one_by_one.apply(batch, clock=1)
        updates = self.checker.apply(batch)
        assert updates.to_arrow().equals(expected.to_arrow())
        engines = self.checker.engine, self.one_by_one
        values = [engine.embeddings() for engine in engines]
        assert values[0].tobytes() == values[1].tobytes()
        for name in ("edge", "vertex"):
            for i in (1, 2):
                id = engines[0].chain.operators[2 * i - (name == "edge")]
                ours, theirs = (engine._chain.counts(id) for engine in engines)
                assert ours["messages"] == theirs["messages"]
                assert ours["touched"] == theirs["touched"]


@given(data=st.data())
def test_equals_the_operators_one_by_one(data: st.DataObject) -> None:
    schema = data.draw(schemas(width=3), "schema")
    compared = Compared(schema, data.draw(st.sampled_from(["mean", "sum"]), "aggr"))
    for batch in data.draw(
        event_batches(schema, data.draw(st.sampled_from(["int", "str"]), "ids")), "batches"
    ):
        compared.apply(batch)


@pytest.mark.parametrize("edges", ["simple", "multi", "keyed", "append"])
def test_equals_the_operators_on_streams_of_batches_of_all_sizes(edges: events.EdgeMode) -> None:
    compared = Compared(GraphSchema(features={"x": 3}, edges=edges))
    for size in (1, 2, 9, 40, 1, 100):
        for batch in random_batches(compared.checker.engine.schema, 5 + size, 6, size, 30):
            compared.apply(batch)
    # Small batches, batches with too many messages, and those with many masters for their number of messages.
    assert compared.ends[1] > 10
    assert compared.ends[layer_step._MANY] > 0


def test_many_masters_are_updated_at_once() -> None:
    compared = Compared(GraphSchema(features={"x": 3}))
    compared.apply([events.edge("hub", f"leaf {i}", time=1) for i in range(40)])
    for time in (2, 3):  # the first makes room
        compared.apply([events.feature("hub", [1.0, 2.0, float(time)], time=time)])
    assert compared.ends[layer_step._DUE] > 0


def test_a_dwarfed_sum_is_recomputed() -> None:
    compared = Compared(GraphSchema(features={"x": 3}))
    compared.apply([events.edge("a", "b", time=1), events.edge("c", "b", time=1)])
    compared.apply([events.feature("a", [1e15, -1e15, 1.0], time=2)])
    compared.apply([events.feature("a", [1.0, 2.0, 3.0], time=3), events.edge("d", "b", time=3)])
    compared.apply([events.feature("c", [3.0, 2.0, 3.0], time=4)])
    assert compared.ends[layer_step._DWARFED] > 0


def test_new_values_do_not_travel_along_new_edges_twice() -> None:
    compared = Compared(GraphSchema(features={"x": 3}), "sum")
    compared.apply([events.edge("a", "b", time=1), events.edge("b", "c", time=1)])
    compared.apply([events.feature("a", [1.0, 2.0, 3.0], time=2), events.edge("b", "d", time=2)])
    compared.apply([events.edge("c", "b", time=3), events.delete_edge("b", "d", time=3)])
    compared.apply([events.edge("c", "a", time=4), events.delete_vertex("b", time=4)])


@pytest.mark.parametrize(
    "settings",
    [{"parts": 2}, {"window": Tumbling(1.0)}, {"model": GCN(3, 4, num_layers=2, seed=0)}],
    ids=["two parts", "a window", "another layer"],
)
def test_takes_the_simplest_layers_only(settings: dict[str, Any]) -> None:
    engine = LocalEngine(**({"model": make_model()} | settings))
    assert not any(engine._chain._layers)


def test_follows_arrays_that_grow() -> None:
    compared = Compared(GraphSchema(features={"x": 3}))
    rng = np.random.default_rng(3)
    for time in range(300):  # vertices and edges double many times
        src, dst = rng.integers(0, 2 + time, 2)
        compared.apply([events.edge(int(src), int(dst), time=time)])
    assert compared.ends[1] > 200
