"""Whole real streams end where a static forward pass over the final graph ends, however small the batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from d3gnn import GraphSchema, LocalEngine
from d3gnn.events import EdgeMode, EventBatch, IntKeys, Keys, Op, Reason, keys_from_arrow, keys_of
from d3gnn.kernel.hashing import initial_values
from d3gnn.kernel.reference import Oracle, embeddings, forward, relative_error
from d3gnn.nn import GNN, GraphSAGE
from d3gnn.sources import read_edge_list
from d3gnn.types import Floats, Small

WIDTHS = [16, 16, 16]


class Stream(NamedTuple):
    path: str
    edges: EdgeMode
    directed: bool
    batch: int
    parts: int


STREAMS = {
    "sx-mathoverflow": Stream("sx-mathoverflow.txt.gz", "multi", True, 50_000, 2),
    "as-733": Stream("as-733/as-733-events.csv.gz", "simple", False, 20_000, 3),
    "ogbn-arxiv": Stream("ogbn-arxiv/edges_by_year.csv.gz", "simple", True, 200_000, 1),
}


def read(folder: Path, stream: Stream, limit: int | None = None) -> EventBatch:
    path = folder / stream.path
    if not path.exists():
        pytest.skip(f"{path} does not exist")
    edges = read_edge_list(path, limit=limit)
    src, dst = (_keys(ids) for ids in (edges.src, edges.dst))
    batch = EventBatch.edges(src, dst, time=edges.time)
    op = np.where(edges.op > 0, int(Op.CREATE), int(Op.DELETE)).astype(np.int8)
    return EventBatch(op, batch.element, batch.src, batch.time, batch.dst)


def _keys(ids: Any) -> Keys:
    return IntKeys(ids) if isinstance(ids, np.ndarray) else keys_from_arrow(ids)


def final(model: GNN, stream: Stream, events: EventBatch, status: Small) -> tuple[Keys, Floats]:
    """Ids and embeddings of the final graph."""
    if (events.op == Op.CREATE).all() and stream.directed:  # dictionaries would take half a minute
        assert isinstance(events.src, IntKeys)
        assert isinstance(events.dst, IntKeys)
        ids, ends = np.unique([events.src.values, events.dst.values], return_inverse=True)
        ends = ends.reshape(2, -1)
        repeated = np.zeros(len(events), np.bool_)
        if stream.edges == "simple":
            repeated[:] = True
            repeated[np.unique(ends[0] * len(ids) + ends[1], return_index=True)[1]] = False
        assert (status == np.where(repeated, Reason.REPEATED, Reason.APPLIED)).all()
        inputs = initial_values(IntKeys(ids), model.in_width)
        return IntKeys(ids), forward(model, inputs, ends[0][~repeated], ends[1][~repeated])
    oracle = Oracle(GraphSchema(edges=stream.edges, directed=stream.directed).for_model(model.in_width))
    assert oracle.apply(events) == status.tolist()
    expected = embeddings(model, oracle)
    return keys_of(list(expected)), np.stack(list(expected.values()))


def check(stream: Stream, events: EventBatch, ends: list[int]) -> None:
    """Stream the events in batches that end there; all must be as if they had come at once."""
    schema = GraphSchema(edges=stream.edges, directed=stream.directed)
    engine = LocalEngine(GraphSAGE(WIDTHS, seed=1), stream.parts, schema=schema)
    batches = zip([0, *ends], [*ends, len(events)], strict=True)
    status = [engine.apply(events.take(slice(begin, end)), clock=1).status for begin, end in batches]
    ids, expected = final(engine.model, stream, events, np.concatenate(status))
    assert len(engine) == len(ids)
    assert relative_error(engine.embeddings(ids), expected) <= 1e-5


@pytest.mark.parametrize("name", STREAMS)
def test_the_whole_stream(name: str, shared_data: Path) -> None:
    stream = STREAMS[name]
    events = read(shared_data, stream)
    check(stream, events, list(range(stream.batch, len(events), stream.batch)))


@pytest.mark.parametrize("name", STREAMS)
def test_a_prefix_in_tiny_batches(name: str, shared_data: Path) -> None:
    stream = STREAMS[name]
    events = read(shared_data, stream, limit=6000)
    ends = np.cumsum(np.random.default_rng(1).integers(1, 8, len(events)))
    check(stream._replace(parts=2), events, ends[ends < len(events)].tolist())
