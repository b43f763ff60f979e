"""Hold an engine against recomputation from scratch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from d3gnn.bench.live_graph import LiveGraph
from d3gnn.bench.result import Report, silent
from d3gnn.events import EventBatch, GraphSchema, Key, Keys
from d3gnn.kernel.reference import Oracle, embeddings, forward, relative_error
from d3gnn.nn import GNN
from d3gnn.types import Floats

#: Incremental and static embeddings differ by rounding alone; more than this is a mistake.
TOLERANCE = 1e-5


class Comparison(NamedTuple):
    """How an engine's embeddings compare with those of a static forward pass."""

    vertices: int
    edges: int
    max_relative_error: float


class Engine(Protocol):
    """What can be held against recomputation."""

    model: GNN
    schema: GraphSchema

    def __len__(self) -> int: ...
    def ids(self) -> Keys: ...
    def embeddings(self, ids: Sequence[Key] | Keys) -> Floats: ...


def compare(engine: Engine, batches: Iterable[EventBatch], report: Report = silent) -> Comparison:
    """Apply the same batches to the oracle, run the model once over the graph, compare every vertex."""
    return hold_against(engine, recompute(engine.model, engine.schema, batches, report))


class Expected(NamedTuple):
    """What recomputation from scratch gives."""

    embeddings: dict[Key, Floats]
    edges: int

    def __len__(self) -> int:
        return len(self.embeddings)


def recompute(
    model: GNN, schema: GraphSchema, batches: Iterable[EventBatch], report: Report = silent
) -> Expected:
    """Apply batches to the oracle, and run the model once over the graph."""
    oracle = Oracle(schema)
    done = 0
    for batch in batches:
        oracle.apply(batch)
        done += len(batch)
        report(done)
    return Expected(embeddings(model, oracle), len(oracle.edges()))


def hold_against(engine: Engine, recomputed: Expected) -> Comparison:
    """Compare every vertex of an engine."""
    expected = recomputed.embeddings
    ids = list(expected)
    if set(engine.ids().to_list()) != set(ids):
        raise RuntimeError(
            f"the engine has {len(engine)} vertices, recomputation {len(ids)}, and they are not the same"
        )
    if not ids:
        return Comparison(0, 0, 0.0)
    error = relative_error(engine.embeddings(ids), np.stack([expected[id] for id in ids]))
    if not np.isfinite(error):
        raise RuntimeError("the engine has embeddings that are not finite")
    return Comparison(len(ids), recomputed.edges, error)


def compare_with_forward(engine: Engine, batches: Iterable[EventBatch]) -> float:
    """The largest relative error of any vertex: as `compare`, for graphs too large for dictionaries."""
    graph = LiveGraph(engine.schema)
    for batch in batches:
        graph.apply(batch)
    if len(engine) != len(graph):
        raise RuntimeError(f"the engine has {len(engine)} vertices, the graph {len(graph)}")
    expected = forward(engine.model, graph.inputs, graph.src, graph.dst)
    error = relative_error(engine.embeddings(graph.keys()), expected)
    if not np.isfinite(error):
        raise RuntimeError("the engine has embeddings that are not finite")
    return error
