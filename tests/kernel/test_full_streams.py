"""Real streams, in batches of any size, end with the embeddings of a static pass over the final graph."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from d3gnn import GraphSchema, LocalEngine
from d3gnn.events import EdgeMode, EventBatch, Op, Reason
from d3gnn.events.keys import IntKeys, Keys, keys_from_arrow, keys_of
from d3gnn.kernel.hashing import initial_values
from d3gnn.kernel.windows import AdaptiveSession, Count, Session, Tumbling, Window
from d3gnn.nn import GNN
from d3gnn.nn.models import sage_from_widths
from d3gnn.oracle import Oracle, embeddings, forward, relative_error
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
    # The oracle's dictionaries would take half a minute.
    if (events.op == Op.CREATE).all() and stream.directed:
        assert isinstance(events.src, IntKeys)
        assert isinstance(events.dst, IntKeys)
        ids, ends = np.unique([events.src.values, events.dst.values], return_inverse=True)
        ends = ends.reshape(2, -1)
        repeated = np.zeros(len(events), np.bool_)
        if stream.edges == "simple":
            repeated[:] = True
            repeated[np.unique(ends[0] * len(ids) + ends[1], return_index=True)[1]] = False
        assert (status == np.where(repeated, Reason.REPEATED, Reason.APPLIED)).all()
        inputs = initial_values(IntKeys(ids), model.in_channels)
        return IntKeys(ids), forward(model, inputs, ends[0][~repeated], ends[1][~repeated])
    oracle = Oracle(GraphSchema(edges=stream.edges, directed=stream.directed).for_model(model.in_channels))
    assert oracle.apply(events) == status.tolist()
    expected = embeddings(model, oracle)
    return keys_of(list(expected)), np.stack(list(expected.values()))


def check(stream: Stream, events: EventBatch, ends: list[int]) -> None:
    """Stream the events in batches with these ends; the result must be that of one batch."""
    schema = GraphSchema(edges=stream.edges, directed=stream.directed)
    engine = LocalEngine(sage_from_widths(WIDTHS, seed=1), parts=stream.parts, schema=schema)
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


MS = 1000
WINDOWS: list[Window] = [
    Tumbling(0.04),
    Session(0.02, max_delay=0.06),
    AdaptiveSession(shortest=0.01, widest=0.06, period=0.05),
    Count(20, max_delay=0.1),
]


@pytest.fixture(scope="module")
def static_results(shared_data: Path) -> Callable[[str], tuple[EventBatch, GNN, Keys, Floats]]:
    """The events of a stream, a model, and the result of a static forward pass; each computed once."""

    @cache
    def compute(name: str) -> tuple[EventBatch, GNN, Keys, Floats]:
        stream, model = STREAMS[name], sage_from_widths(WIDTHS, seed=1)
        events = read(shared_data, stream)
        schema = GraphSchema(edges=stream.edges, directed=stream.directed)
        status = LocalEngine(model, schema=schema).apply(events, clock=1).status
        return events, model, *final(model, stream, events, status)

    return compute


@pytest.mark.parametrize("parts", [1, 2, 4])
@pytest.mark.parametrize("window", WINDOWS, ids=lambda window: window.name)
@pytest.mark.parametrize("name", ["sx-mathoverflow", "as-733"])
def test_the_whole_stream_through_windows(
    name: str,
    window: Window,
    parts: int,
    static_results: Callable[[str], tuple[EventBatch, GNN, Keys, Floats]],
) -> None:
    events, model, ids, expected = static_results(name)
    schema = GraphSchema(edges=STREAMS[name].edges, directed=STREAMS[name].directed)
    engine = LocalEngine(model, parts=parts, schema=schema, window=window)
    size, max_pending = STREAMS[name].batch // 2, 0
    for number, begin in enumerate(range(0, len(events), size), start=1):
        engine.apply(events.take(slice(begin, begin + size)), clock=number * 10 * MS)
        max_pending = max(max_pending, sum(engine.pending().values()))
    assert max_pending > 0, "nothing was ever pending"
    assert sum(engine.pending().values()) > 0, "there is something to drain"
    engine.drain()
    assert len(engine) == len(ids)
    assert relative_error(engine.embeddings(ids), expected) <= 1e-5
