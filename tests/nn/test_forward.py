"""The static forward pass: gradients, edge features, shapes. Other tests compare its output with PyG's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn

from d3gnn.nn import GAT, GCN, GIN, GNN, GATv2Conv, GCNConv, GraphSAGE, SAGEConv, from_pyg


def graph(n: int = 12, edges: int = 40, width: int = 5) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(n, width, generator=generator), torch.randint(0, n, (2, edges), generator=generator)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "GraphSAGE": lambda: pyg.GraphSAGE(5, 8, 2, 3, normalize=True),
    "GraphSAGE, max": lambda: pyg.GraphSAGE(5, 8, 2, 3, aggr="max"),
    "GraphSAGE, tanh": lambda: pyg.GraphSAGE(5, 3, 2, 3, act="tanh", project=True),
    "GCN": lambda: pyg.GCN(5, 8, 2, 3, norm="batch_norm"),
    "GIN": lambda: pyg.GIN(5, 8, 2, 3, train_eps=True, jk="cat"),
    "GAT": lambda: pyg.GAT(5, 8, 2, 3, heads=2),
    "GATv2": lambda: pyg.GAT(5, 8, 2, 3, heads=2, v2=True),
}


@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_those_of_pyg(name: str) -> None:
    torch.manual_seed(1)
    theirs = MODELS[name]()
    ours = from_pyg(theirs).train()
    x, edge_index = graph()
    gradients = []
    for model in (theirs, ours):
        model.zero_grad()
        own = x.clone().requires_grad_()
        model(own, edge_index).pow(2).sum().backward()
        weights = [weight.grad for weight in model.parameters()]
        assert all(gradient is not None for gradient in weights)
        assert own.grad is not None
        gradients.append((own.grad, [gradient for gradient in weights if gradient is not None]))
    (expected_x, expected), (got_x, got) = gradients
    torch.testing.assert_close(got_x, expected_x, rtol=1e-3, atol=1e-4)
    # PyG orders weights differently: norms of gradients tell whether all of them are there.
    norms = [sorted(float(gradient.norm()) for gradient in each) for each in (got, expected)]
    torch.testing.assert_close(torch.tensor(norms[0]), torch.tensor(norms[1]), rtol=1e-3, atol=1e-3)


def test_a_model_can_be_trained() -> None:
    model = GraphSAGE(5, 8, 2, 2, seed=1)
    x, edge_index = graph()
    target = (x[:, 0] > 0).long()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    losses = []
    for _ in range(40):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x, edge_index), target)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


def test_a_layer_can_be_called_alone() -> None:
    torch.manual_seed(1)
    layers = [GCNConv(5, 4, act="relu"), SAGEConv(4, 2, "max")]
    x, edge_index = graph()
    expected = layers[1](layers[0](x, edge_index), edge_index)
    torch.testing.assert_close(GNN(layers)(x, edge_index), expected)


def test_many_edges_are_taken_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    x, edge_index = graph(n=40, edges=500)
    edge_index[1] = edge_index[1].clamp(max=30)
    edge_index[1, :60] = 7  # one vertex alone exceeds a chunk
    models = [GraphSAGE(5, 4, 2, aggr=["mean", "max"], seed=1), GCN(5, 4, 2, seed=1), GIN(5, 4, 2, seed=1)]
    whole = [model(x, edge_index) for model in models]
    monkeypatch.setattr("d3gnn.nn.forward._CHUNK", 16)
    for model, expected in zip(models, whole, strict=True):
        torch.testing.assert_close(model(x, edge_index), expected)


def test_what_edges_lack_has_a_default() -> None:
    x, edge_index = graph()
    nothing, torch_nan = torch.full((40, 1), torch.nan), torch.nan
    weighted, plain = GCN(5, 4, 2, edge_weight=True, seed=1), GCN(5, 4, 2, seed=1)
    torch.testing.assert_close(weighted(x, edge_index, nothing), plain(x, edge_index))
    torch.testing.assert_close(weighted(x, edge_index), plain(x, edge_index))
    weights = torch.rand(40)
    torch.testing.assert_close(weighted(x, edge_index, weights), weighted(x, edge_index, weights[:, None]))
    attention = GAT(5, 4, 2, edge_dim=2, seed=1)
    some = torch.tensor([[1.0, torch_nan]]).repeat(40, 1)
    torch.testing.assert_close(
        attention(x, edge_index, some), attention(x, edge_index, torch.nan_to_num(some))
    )


def test_models_that_read_no_edges_ignore_their_features() -> None:
    x, edge_index = graph()
    model = GraphSAGE(5, 4, 2, seed=1)
    assert torch.equal(model(x, edge_index, torch.rand(40, 3)), model(x, edge_index))


def test_a_graph_without_edges_or_vertices() -> None:
    none = torch.zeros((2, 0), dtype=torch.int64)
    for model in (GraphSAGE(5, 4, 2, 3), GCN(5, 4, 2, 3), GAT(5, 4, 2, 3), GIN(5, 4, 2, 3)):
        assert model(torch.rand(2, 5), none).shape == (2, 3)
        assert model(torch.rand(0, 5), none).shape == (0, 3)


def test_double_precision_is_kept() -> None:
    x, edge_index = graph()
    for model in (GraphSAGE(5, 4, 2, seed=1), GCN(5, 4, 2, seed=1), GAT(5, 4, 2, seed=1)):
        expected = model(x, edge_index)
        out = model.double()(x.double(), edge_index)
        assert out.dtype == torch.float64
        torch.testing.assert_close(out.float(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("x", "edge_index", "edge_attr", "message"),
    [
        ((12, 4), (2, 40), None, r"x has shape \(12, 4\): it must be \[vertices, 5\]"),
        ((12,), (2, 40), None, r"x has shape \(12,\)"),
        ((12, 5), (40, 2), None, r"edge_index has shape \(40, 2\): it must be \[2, edges\]"),
        ((12, 5), (2, 40), (40, 3), r"edge_attr has shape \(40, 3\): it must be \[40, 2\]"),
        ((12, 5), (2, 40), (39, 2), r"edge_attr has shape \(39, 2\): it must be \[40, 2\]"),
    ],
)
def test_wrong_shapes_are_refused(
    x: tuple[int, ...], edge_index: tuple[int, ...], edge_attr: tuple[int, ...] | None, message: str
) -> None:
    model = GNN([GATv2Conv(5, 4, edge_dim=2)])
    attr = None if edge_attr is None else torch.zeros(edge_attr)
    with pytest.raises(ValueError, match=message):
        model(torch.zeros(x), torch.zeros(edge_index, dtype=torch.int64), attr)


def test_a_prepared_copy_leaves_the_model_as_it_is() -> None:
    torch.manual_seed(1)
    model = GNN([SAGEConv(5, 8, act="relu"), GCNConv(8, 4), GATv2Conv(4, 2)])
    x, edge_index = graph()
    before = model(x, edge_index)
    before.sum().backward()
    prepared = model.prepared()
    assert model.training
    assert not prepared.training
    assert all(weight.requires_grad and weight.grad is not None for weight in model.parameters())
    assert not any(weight.requires_grad for weight in prepared.parameters())
    assert model.layers[0].affine is None
    torch.testing.assert_close(prepared(x, edge_index), before)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(2)
    torch.testing.assert_close(prepared(x, edge_index), before)
    torch.testing.assert_close(prepared.prepared()(x, edge_index), before)
    assert not torch.allclose(model(x, edge_index), before)
