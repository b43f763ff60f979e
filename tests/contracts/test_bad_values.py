"""A bad value leaves no trace once it is corrected or deleted, however large it was: every aggregator, every
layer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from d3gnn import GraphSchema, LocalEngine
from d3gnn.events import (
    Event,
    delete_edge,
    delete_feature,
    delete_vertex,
    edge,
    edge_feature,
    feature,
    vertex,
)
from d3gnn.kernel.operators import edge as edge_operator
from d3gnn.nn import GNN, GATConv, GATv2Conv, GCNConv, GINConv, GraphConv, Layer, SAGEConv
from d3gnn.testing import OracleChecker
from d3gnn.windows import Tumbling

VERTICES = 14
#: From what is lost beside ordinary values to what only just fits into float32.
MAGNITUDES = [1e-30, 1e4, 1e9, 1e15, 1e17, 1e30, 3e38]
BAD_VERTEX = 99

MakeLayer = Callable[[int, int], Layer]


LAYERS: dict[str, MakeLayer] = {
    **{
        aggr: lambda i, o, aggr=aggr: SAGEConv(i, o, aggr, bias=False)  # type: ignore[misc]
        for aggr in ("sum", "mean", "max", "min", "mean,max", "min,sum,max")
    },
    "gin": lambda i, o: GINConv(nn.Sequential(nn.Linear(i, o), nn.ReLU(), nn.Linear(o, o))),
    "gcn": lambda i, o: GCNConv(i, o, bias=False),
    "gcn-weighted": lambda i, o: GCNConv(i, o, edge_weight=True),
    "gcn-plain": lambda i, o: GCNConv(i, o, edge_weight=True, normalize=False),
    "graph-conv": lambda i, o: GraphConv(i, o, "mean", edge_weight=True),
    "gat": lambda i, o: GATConv(i, o, heads=2, concat=False),
    "gat-edges": lambda i, o: GATConv(i, o, heads=2, concat=False, edge_dim=1),
    "gatv2": lambda i, o: GATv2Conv(i, o, heads=2, concat=False, edge_dim=1),
    "gatv2-fill": lambda i, o: GATv2Conv(i, o, edge_dim=1, fill_value=0.5, add_self_loops=True),
}


class Stream:
    """A small graph of ordinary values, in an engine and in the oracle."""

    def __init__(self, make: MakeLayer, *, parts: int = 3, scale: float = 1.0, **engine: Any) -> None:
        torch.manual_seed(3)
        model = GNN([make(3, 5), make(5, 2)])
        on_edges = {"w": 1} if model.edge_dim else {}
        schema = GraphSchema(features={"x": 3}, edge_features=on_edges)
        self.checker = OracleChecker(LocalEngine(model, parts=parts, schema=schema, **engine))
        self.weighted, self.scale, self.time = bool(on_edges), scale, 0
        self.rng = np.random.default_rng(7)
        pairs = [(u, v) for u in range(VERTICES) for v in range(VERTICES) if self.rng.random() < 0.25]
        self.edges = [pairs[i] for i in self.rng.permutation(len(pairs))]
        self.apply([*(self.ordinary(v) for v in range(VERTICES)), *(self.edge(u, v) for u, v in self.edges)])
        self.check()

    def ordinary(self, v: int) -> Event:
        return feature(v, (self.scale * self.rng.standard_normal(3)).tolist())

    def edge(self, u: int, v: int, weight: float | None = None) -> Event:
        weight = float(self.rng.uniform(0.5, 2)) if weight is None else weight
        return edge(u, v, [weight] if self.weighted else None)

    def bad(self, v: int, magnitude: float) -> Event:
        """A feature of which one number is bad, or all are."""
        x = self.scale * self.rng.standard_normal(3)
        which = self.rng.choice([0, 1, 2, 3])
        x[slice(None) if which == 3 else which] = magnitude * self.rng.choice([-1.0, 1.0])
        return feature(v, x.tolist())

    def apply(self, events: list[Event]) -> None:
        self.time += 1
        events = [event._replace(time=self.time) for event in events]
        self.checker.oracle.apply(events)
        self.checker.record(self.checker.engine.apply(events, clock=self.time * 300_000))

    def check(self) -> None:
        if self.checker.engine.config.windowed:
            self.checker.drain(clock=self.time * 300_000)
        else:
            self.checker.check()

    def run(self, magnitude: float) -> None:
        """Bad values come and go in every way; where none is left, the embeddings are compared."""
        u, v, w = (int(x) for x in self.rng.choice(VERTICES, 3, replace=False))
        # Corrected, or deleted.
        for correction in (self.ordinary(u), delete_feature(u)):
            self.apply([self.bad(u, magnitude)])
            self.apply([correction, self.ordinary(w)])
            self.check()
        # Corrected step by step, so that no step is large.
        for exponent in range(int(np.log10(magnitude)), 0, -3):
            self.apply([self.bad(u, 10.0**exponent)])
        self.apply([self.ordinary(u)])
        self.check()
        # Two in a batch, of which one takes away the sign of the other.
        opposite = self.bad(u, magnitude)
        assert opposite.value is not None
        self.apply([opposite, feature(v, [-x for x in opposite.value])])
        self.apply([self.ordinary(w)])
        self.apply([self.ordinary(u), self.ordinary(v)])
        self.check()
        # Edges come and go while a bad value is there.
        missing = [(BAD_VERTEX, v), (BAD_VERTEX, w), (u, BAD_VERTEX)]
        self.apply([self.bad(BAD_VERTEX, magnitude), *(self.edge(*pair) for pair in missing)])
        self.apply([delete_edge(BAD_VERTEX, v), self.edge(BAD_VERTEX, u), self.ordinary(w)])
        self.apply([delete_vertex(BAD_VERTEX)])
        self.check()
        # Vertices whose only neighbour is bad.
        self.apply([self.bad(BAD_VERTEX, magnitude), self.edge(BAD_VERTEX, 98), vertex(98)])
        self.apply([self.ordinary(98), self.edge(u, 98)])
        self.apply([delete_edge(BAD_VERTEX, 98)])
        self.apply([delete_vertex(BAD_VERTEX)])
        self.check()
        self.apply([delete_vertex(98)])
        if self.weighted:
            self.run_weights(magnitude)

    def run_weights(self, magnitude: float) -> None:
        """The same for values of edges, which are positive where they are weights."""
        (a, b), (c, d) = (self.edges[i] for i in self.rng.choice(len(self.edges), 2, replace=False))
        self.apply([edge_feature(a, b, [magnitude])])
        self.apply([edge_feature(a, b, [1.5]), self.ordinary(c)])
        self.check()
        self.apply([edge_feature(c, d, [magnitude]), edge_feature(a, b, [magnitude])])
        self.apply([self.ordinary(b)])
        self.apply([delete_edge(c, d), Event("delete", "edge_feature", a, b)])
        self.check()
        self.apply([self.edge(c, d, magnitude), self.bad(c, magnitude)])
        self.apply([self.ordinary(c)])
        self.apply([edge_feature(c, d, [0.75])])
        self.check()


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("pulls", [False, None], ids=["push", "as it is"])
def test_a_bad_value_leaves_no_trace(name: str, pulls: bool | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if pulls is not None:
        monkeypatch.setattr(edge_operator, "prefers_pull", lambda *_: pulls)
    stream = Stream(LAYERS[name])
    for magnitude in MAGNITUDES:
        stream.run(magnitude)


@pytest.mark.parametrize("name", ["sum", "mean,max", "gcn-weighted", "gatv2"])
def test_windows_merge_bad_values_with_their_correction(name: str) -> None:
    stream = Stream(LAYERS[name], parts=2, window=(Tumbling(0.5), Tumbling(0.7)))
    for magnitude in (1e15, 3e38):
        stream.run(magnitude)


@pytest.mark.parametrize("name", ["sum", "mean", "max", "gcn"])
def test_ordinary_values_may_be_tiny(name: str) -> None:
    stream = Stream(LAYERS[name], scale=1e-30)
    for magnitude in (1e-20, 1.0, 1e15):
        stream.run(magnitude)
