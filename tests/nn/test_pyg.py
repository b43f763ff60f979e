"""Models trained in PyG are converted with their weights; unsupported parts are named."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from d3gnn import GraphSchema, LocalEngine
from d3gnn.events import Element, EventBatch, Op
from d3gnn.events.keys import IntKeys
from d3gnn.nn import GNN, GCNConv, UnsupportedModelError, from_pyg
from d3gnn.types import Floats, Ints


class PubMed(NamedTuple):
    """Papers with their words and topics, and citations in both directions, in the order of time."""

    x: Floats
    label: Ints
    train: Ints
    edge_index: Tensor

    def events(self) -> list[EventBatch]:
        """Features and edges, in a few batches."""
        n, width = self.x.shape
        ids, nothing = IntKeys(np.arange(n)), np.zeros(n, np.int64)
        vertices = EventBatch(
            np.full(n, Op.CREATE, np.int8), np.full(n, Element.VERTEX, np.int8), ids, nothing,
            values=self.x.reshape(-1), value_offsets=np.arange(n + 1) * width,
        )  # fmt: skip
        src, dst = self.edge_index.numpy()
        parts = np.array_split(np.arange(len(src)), 5)
        edges = [EventBatch.edges(src[some], dst[some], time=np.full(len(some), 1)) for some in parts]
        return [edges[0], vertices, *edges[1:]]


@pytest.fixture(scope="module")
def pubmed(shared_data: Path) -> PubMed:
    folder = shared_data / "pubmed-temporal"
    if not folder.is_dir():
        pytest.skip(f"{folder} does not exist")
    with gzip.open(folder / "features.svm.gz", "rt") as file:
        lines = file.read().split("\n")
    rows = [line.split()[1:] for line in lines if line]
    x = np.zeros((len(rows), 500), np.float32)
    for row, words in zip(x, rows, strict=True):
        for word in words:
            place, _, value = word.partition(":")
            row[int(place)] = float(value)
    with gzip.open(folder / "labels.csv.gz", "rt") as file:
        labels = [line.strip().split(",") for line in file][1:]
    assert [int(node) for node, *_ in labels] == list(range(len(x)))
    edges = np.loadtxt(folder / "edges.csv.gz", np.int64, delimiter=",", skiprows=1)
    pairs = edges[np.argsort(edges[:, 2], kind="stable"), :2]
    return PubMed(
        x,
        np.array([int(label) for _, label, _ in labels]),
        np.flatnonzero([split == "train" for *_, split in labels]),
        torch.from_numpy(np.concatenate([pairs, pairs[:, ::-1]]).T.copy()),
    )


def sequential() -> nn.Module:
    steps = [
        (pyg.GATv2Conv(500, 4, heads=2), "x, edge_index -> x"),
        nn.ELU(),
        (pyg.GCNConv(8, 8), "x, edge_index -> x"),
        nn.LayerNorm(8),
        nn.ReLU(),
        (pyg.SAGEConv(8, 3, aggr="max"), "x, edge_index -> x"),
    ]
    made: nn.Module = pyg.Sequential("x, edge_index", steps)
    return made


MODELS: dict[str, Callable[[], nn.Module]] = {
    "GraphSAGE": lambda: pyg.GraphSAGE(500, 8, 2, 3, dropout=0.3, norm="batch_norm"),
    "GCN": lambda: pyg.GCN(500, 8, 2, 3, dropout=0.3),
    "GIN": lambda: pyg.GIN(500, 8, 2, 3, jk="cat"),
    "GAT": lambda: pyg.GAT(500, 8, 2, 3, heads=2),
    "Sequential": sequential,
}


@pytest.mark.parametrize("name", MODELS)
def test_streaming_and_the_static_pass_agree_on_every_class(
    name: str, pubmed: PubMed, tmp_path: Path
) -> None:
    torch.manual_seed(1)
    model = MODELS[name]()
    x, label = torch.from_numpy(pubmed.x), torch.from_numpy(pubmed.label)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(12):
        optimizer.zero_grad()
        loss = cross_entropy(model(x, pubmed.edge_index)[pubmed.train], label[pubmed.train])
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    model.eval()
    from_pyg(model).save(tmp_path / "model")
    engine = LocalEngine(GNN.load(tmp_path / "model"), parts=2, schema=GraphSchema(edges="multi"))
    for batch in pubmed.events():
        engine.apply(batch)
    with torch.inference_mode():
        expected = model(x, pubmed.edge_index).numpy()
    got = engine.embeddings(IntKeys(np.arange(len(x))))
    assert (got.argmax(1) == expected.argmax(1)).all()
    assert (expected.argmax(1) == pubmed.label).mean() > 0.5, "it has learned something"


def conv(kind: str, *args: Any, **kwargs: Any) -> Callable[[], nn.Module]:
    return lambda: getattr(pyg, kind)(*args, **kwargs)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (conv("ChebConv", 3, 4, K=2), "model: ChebConv is not supported; supported are GATConv"),
        (lambda: nn.Linear(2, 3), "Linear is not supported"),
        (conv("SAGEConv", 3, 4, aggr="median"), "aggr='median' is not supported; supported are add"),
        (conv("SAGEConv", (3, 4), 4), "only a single known width"),
        (conv("SAGEConv", -1, 4), "only a single known width"),
        (conv("SAGEConv", 3, 4, flow="target_to_source"), "only 'source_to_target' is supported"),
        (conv("GCNConv", 3, 4, aggr="max"), "GCNConv has aggr='max'; only 'add'"),
        (conv("GATConv", 3, 4, fill_value="max"), "fill_value='max' is not supported"),
        (
            conv("GraphSAGE", 3, 4, 2, norm="graph_norm"),
            r"norms\.0: GraphNorm is not supported: it reads several",
        ),
        (
            conv("GraphSAGE", 3, 4, 2, norm="layer_norm"),
            r"norms\.0: LayerNorm is not supported: it reads several",
        ),
        (conv("GraphSAGE", 3, 4, 2, jk="lstm"), "jk: 'lstm' is not supported; use last, cat, max or none"),
        (conv("GraphSAGE", 3, 4, 2, act="softshrink"), "act: Softshrink is not supported"),
        (
            conv("PNA", 3, 4, 2, aggregators=["mean"], scalers=["identity"], deg=torch.ones(3)),
            "convs.0: PNAConv is not supported",
        ),
        (
            lambda: pyg.Sequential("x, edge_index", [(pyg.SAGEConv(3, 4), "x, edge_index -> y")]),
            "signature 'x, edge_index -> y'; supported are",
        ),
        (
            lambda: pyg.Sequential("x", [(nn.Linear(3, 4), "x -> x")]),
            "comes before the first convolution",
        ),
    ],
)
def test_unsupported_parts_are_named(make: Callable[[], nn.Module], message: str) -> None:
    with pytest.raises(UnsupportedModelError, match=message):
        from_pyg(make())


def test_edge_features_that_a_model_needs_are_checked() -> None:
    model = from_pyg(pyg.GATConv(3, 4, edge_dim=2))
    with pytest.raises(ValueError, match="takes 2 numbers per edge, the schema's edge features have 0"):
        LocalEngine(model)
    with pytest.raises(ValueError, match="must all use edge weights, or none of them"):
        GNN([GCNConv(3, 4, edge_weight=True), GCNConv(4, 2)])
