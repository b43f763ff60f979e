"""Every peer has the embeddings of a static forward pass after every batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from d3gnn.bench.check import TOLERANCE
from d3gnn.bench.live_graph import LiveGraph
from d3gnn.bench.peers import PEERS, Peer, base, make_peer
from d3gnn.events import Event, EventBatch, GraphSchema, edge, feature
from d3gnn.nn import GNN, GraphSAGE, SAGEConv
from d3gnn.nn.layer import Layer
from d3gnn.nn.models import sage_from_widths
from d3gnn.oracle import forward, relative_error
from d3gnn.sources import SyntheticStream
from d3gnn.testing import random_batches

NAMES = list(PEERS)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Synchronising threads takes most of the time on these small graphs."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def peer_over(name: str, model: GNN, graph: LiveGraph) -> Peer:
    """The peer; skips the test if its library is not installed."""
    needs = PEERS[name].needs
    try:
        base.import_library(needs)
    except ValueError:
        pytest.skip(f"{needs} is not installed")
    return make_peer(name, model, graph)


def error(peer: Peer, model: GNN) -> float:
    graph = peer.graph
    return relative_error(peer.embeddings(), forward(model, graph.inputs, graph.src, graph.dst))


def check(name: str, model: GNN, schema: GraphSchema, batches: Iterable[EventBatch]) -> None:
    """Load the first batch, apply the others, and compare after each."""
    graph = LiveGraph(schema)
    peer = peer_over(name, model, graph)
    for i, batch in enumerate(batches):
        change = graph.apply(batch)
        if i == 0:
            peer.load()
        else:
            peer.apply(change)
        assert peer.embeddings().shape == (len(graph), model.out_channels)
        assert error(peer, model) < TOLERANCE, f"batch {i}"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("aggregator", ["mean", "sum"])
@pytest.mark.parametrize("undirected", [False, True])
@pytest.mark.parametrize("widths", [[4, 3], [4, 8, 5], [4, 6, 6, 2]], ids=str)
def test_streams(name: str, aggregator: str, undirected: bool, widths: list[int]) -> None:
    stream = SyntheticStream(
        600, vertices=150, deletes=0.3, feature_updates=0.2, bad=0.05, late=0.1, feature_width=4,
        undirected=undirected, seed=len(widths),
    )  # fmt: skip
    check(name, sage_from_widths(widths, aggr=aggregator, seed=1), stream.schema, stream.batches(60))


@pytest.mark.parametrize("name", NAMES)
def test_one_event_at_a_time(name: str) -> None:
    stream = SyntheticStream(150, vertices=30, deletes=0.3, feature_updates=0.3, feature_width=4)
    schema = replace(stream.schema, edges="simple")
    check(name, GraphSAGE(4, 4, 2, seed=1), schema, stream.batches(1))


@pytest.mark.parametrize("name", NAMES)
def test_the_tail_of_the_index_overflows(name: str) -> None:
    """More edges change than `Ripple` keeps outside of its index."""
    schema = GraphSchema("multi", features={"x": 4}, missing="hash")
    batches = random_batches(schema, 5, 12, 400, 100, delete=0.3, delete_vertex=0.0)
    check(name, GraphSAGE(4, 8, 2, 4, seed=1), schema, batches)


@pytest.mark.parametrize("name", NAMES)
def test_layers_with_different_aggregators(name: str) -> None:
    model = GNN([SAGEConv(3, 5, "sum", act="tanh"), SAGEConv(5, 2, "mean")])
    check(name, model, GraphSchema(features={"x": 3}, missing="hash"), SyntheticStream(300).batches(60))


@pytest.mark.parametrize("name", NAMES)
def test_a_hub(name: str) -> None:
    """DGL splits a row of this length."""
    n = 3000
    batches = [EventBatch.edges(list(range(n)), [0] * n), EventBatch.edges([n], [0])]
    check(name, GraphSAGE(64, 64, 2, seed=1), GraphSchema(features={"x": 64}, missing="hash"), batches)


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_graph_and_an_empty_batch(name: str) -> None:
    empty = EventBatch.of([])
    batches = [empty, EventBatch.of([feature(1, [1.0, 2.0])]), empty, EventBatch.edges([1, 2], [2, 2]), empty]
    check(name, GraphSAGE(2, 3, 2, 2, seed=0), GraphSchema(features={"x": 2}, missing="hash"), batches)


@pytest.mark.parametrize("name", [name for name in NAMES if not PEERS[name].recomputes_all])
@pytest.mark.parametrize("what", ["edges", "inputs"])
def test_a_missed_change_gives_a_large_error(name: str, what: str) -> None:
    """In a chain, changes far apart affect different vertices."""
    model, graph = GraphSAGE(2, 4, 2, 4, seed=1), LiveGraph(GraphSchema(features={"x": 2}, missing="hash"))
    peer = peer_over(name, model, graph)
    graph.apply(EventBatch.edges(list(range(20)), list(range(1, 21))))
    peer.load()
    events = [feature(0, [1.0, 2.0]), edge(10, 12), Event("delete", "edge", 15, 16)]
    change = graph.apply(EventBatch.of(events))
    none = np.zeros(0, np.int64)
    if what == "inputs":
        change = replace(change, inputs=none)
    else:
        change = replace(change, added_src=none, added_dst=none, removed_src=none, removed_dst=none)
    peer.apply(change)
    assert error(peer, model) > TOLERANCE
    peer.load()
    assert error(peer, model) < TOLERANCE


def test_unsupported_models_and_missing_libraries_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model, graph = GraphSAGE(4, 4, 1, seed=1), LiveGraph(GraphSchema(features={"x": 4}, missing="hash"))
    with pytest.raises(ValueError, match="choose one of dgl_full, dgl_influenced, pyg_full"):
        make_peer("abacus", model, graph)
    with pytest.raises(ValueError, match=r"for_model\(4\)"):
        make_peer("ripple", model, LiveGraph(GraphSchema()))

    class Other(Layer):
        in_width = out_width = 4
        aggr = "sum"

    with pytest.raises(ValueError, match="GraphSAGE models"):
        make_peer("ripple", GNN([Other()]), graph)

    def absent(name: str) -> Any:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(base, "import_module", absent)
    with pytest.raises(ValueError, match="pip install --no-deps dgl"):
        make_peer("dgl_full", model, graph)
    with pytest.raises(ValueError, match=r"pip install 'd3gnn\[bench\]'"):
        make_peer("pyg_full", model, graph)
