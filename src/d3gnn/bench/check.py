"""Compare the embeddings of an engine with recomputation from scratch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from d3gnn.bench.live_graph import LiveGraph
from d3gnn.bench.result import OnProgress, no_progress
from d3gnn.events import EventBatch, GraphSchema, Key
from d3gnn.events.keys import Keys
from d3gnn.nn import GNN
from d3gnn.oracle import Oracle, embeddings, forward, relative_error
from d3gnn.types import Floats

#: Largest relative error that rounding can explain; incremental and static results differ by no more.
TOLERANCE = 1e-5


class Comparison(NamedTuple):
    """The result of comparing an engine with a static forward pass."""

    vertices: int
    edges: int
    max_relative_error: float


class Engine(Protocol):
    """An engine whose embeddings can be compared with recomputation."""

    model: GNN
    schema: GraphSchema

    def __len__(self) -> int: ...
    def ids(self) -> Keys: ...
    def embeddings(self, ids: Sequence[Key] | Keys) -> Floats: ...


def compare(
    engine: Engine, batches: Iterable[EventBatch], on_progress: OnProgress = no_progress
) -> Comparison:
    """Recompute from the same batches, and compare every vertex of the engine."""
    return compare_with(engine, recompute(engine.model, engine.schema, batches, on_progress))


class Expected(NamedTuple):
    """Embeddings recomputed from scratch, and the number of edges of the graph."""

    embeddings: dict[Key, Floats]
    edges: int

    def __len__(self) -> int:
        return len(self.embeddings)


def recompute(
    model: GNN, schema: GraphSchema, batches: Iterable[EventBatch], on_progress: OnProgress = no_progress
) -> Expected:
    """Apply the batches to the oracle, then run one static forward pass over the final graph."""
    oracle = Oracle(schema)
    done = 0
    for batch in batches:
        oracle.apply(batch)
        done += len(batch)
        on_progress(done)
    return Expected(embeddings(model, oracle), len(oracle.edges()))


def compare_with(engine: Engine, recomputed: Expected) -> Comparison:
    """Compare every vertex of an engine with recomputed embeddings."""
    expected = recomputed.embeddings
    ids = list(expected)
    if set(engine.ids().to_list()) != set(ids):
        raise RuntimeError(
            f"the engine has {len(engine)} vertices and recomputation {len(ids)}: the ids are not the same"
        )
    if not ids:
        return Comparison(0, 0, 0.0)
    error = relative_error(engine.embeddings(ids), np.stack([expected[id] for id in ids]))
    if not np.isfinite(error):
        raise RuntimeError("the engine has embeddings that are NaN or infinite")
    return Comparison(len(ids), recomputed.edges, error)


def compare_with_forward(engine: Engine, batches: Iterable[EventBatch]) -> float:
    """The largest relative error of any vertex; like `compare`, for graphs too large for the oracle."""
    graph = LiveGraph(engine.schema)
    for batch in batches:
        graph.apply(batch)
    if len(engine) != len(graph):
        raise RuntimeError(f"the engine has {len(engine)} vertices, but the graph has {len(graph)}")
    expected = forward(engine.model, graph.inputs, graph.src, graph.dst)
    error = relative_error(engine.embeddings(graph.keys()), expected)
    if not np.isfinite(error):
        raise RuntimeError("the engine has embeddings that are NaN or infinite")
    return error
