"""Whole real streams end where a static forward pass over the final graph ends, however small the batches."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from d3gnn import GraphSchema, LocalEngine
from d3gnn.events import EdgeMode, EventBatch, Op, keys_from_arrow
from d3gnn.events.keys import IntKeys, Keys
from d3gnn.kernel.reference import Oracle, embeddings, relative_error
from d3gnn.nn import GraphSAGE
from d3gnn.sources import read_edge_list
from d3gnn.types import Array

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


def _keys(ids: Array) -> Keys:
    return IntKeys(ids) if isinstance(ids, np.ndarray) else keys_from_arrow(ids)


def check(stream: Stream, events: EventBatch, ends: list[int]) -> None:
    """Stream the events in batches that end there, and compare with the oracle at the end."""
    schema = GraphSchema(edges=stream.edges, directed=stream.directed)
    engine = LocalEngine(GraphSAGE(WIDTHS, seed=1), stream.parts, schema=schema)
    oracle = Oracle(engine.schema)
    statuses = []
    for begin, end in zip([0, *ends], [*ends, len(events)], strict=True):
        batch = events.take(slice(begin, end))
        statuses.append(engine.apply(batch, clock=1).status)
    # Order counts inside a batch only, and the stream is in order: the oracle may take it at once.
    assert np.concatenate(statuses).tolist() == oracle.apply(events)
    expected = embeddings(engine.model, oracle)
    want = np.stack(list(expected.values()))
    assert len(engine) == len(expected)
    assert relative_error(engine.embeddings(list(expected)), want) <= 1e-5


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
