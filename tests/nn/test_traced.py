"""Models written as modules of the user's own: converted where they are a chain, else refused by line."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn
from torch.nn import functional as F

from d3gnn.nn import UnsupportedModelError, from_pyg

X, EDGES = torch.randn(6, 3), torch.tensor([[0, 1, 2, 3, 4, 0], [1, 2, 3, 4, 5, 3]])
WEIGHTS = torch.rand(6)


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1: Any = pyg.GCNConv(3, 8)
        self.conv2: Any = pyg.GCNConv(8, 2)


class Usual(Layers):
    """As in PyG's tutorials."""

    def forward(self, x: Any, edge_index: Any, edge_weight: Any = None) -> Any:
        x = F.relu(self.conv1(x, edge_index, edge_weight))
        x = F.dropout(x, p=0.5, training=self.training)
        return self.conv2(x, edge_index, edge_weight)


class OfData(nn.Module):
    """Takes PyG's Data, has a list of layers, a normalisation, and a model of PyG inside."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList([pyg.SAGEConv(3, 8, aggr="max"), pyg.GATConv(8, 4, heads=2)])
        self.norms = nn.ModuleList([nn.BatchNorm1d(8), nn.LayerNorm(8)])
        self.drop = nn.Dropout(0.3)
        self.rest = pyg.GraphSAGE(8, 8, num_layers=2, out_channels=5)
        self.lin = nn.Sequential(nn.Linear(5, 5), nn.ELU())

    def forward(self, data: Any) -> Any:
        x, edge_index = data.x, data.edge_index
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = self.drop(norm(conv(x, edge_index)).tanh())
        x = F.leaky_relu(self.rest(x, edge_index), 0.3)
        return torch.log_softmax(self.lin(x).relu_(), dim=-1)


class Data:
    x, edge_index = X, EDGES


def trained(model: nn.Module) -> nn.Module:
    """With other running statistics than at first."""
    model.train()
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.BatchNorm1d):
                module(torch.randn(50, module.num_features) * 3 + 1)
    return model


def test_models_of_the_users_own_return_the_same() -> None:
    usual, of_data = trained(Usual()), trained(OfData())
    for ours, theirs in [
        (from_pyg(usual)(X, EDGES), usual.eval()(X, EDGES)),
        (from_pyg(usual, edge_weight=True)(X, EDGES, WEIGHTS[:, None]), usual.eval()(X, EDGES, WEIGHTS)),
        (from_pyg(of_data)(X, EDGES), of_data.eval()(Data())),
    ]:
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    assert str(from_pyg(Usual())) == "GNN(3 -> Stage(sum) 8 -> GCNConv(sum) 2)"


def test_a_conversion_changes_nothing_in_the_model() -> None:
    model = Usual().train()
    from_pyg(model)
    assert model.training
    assert model.conv1.training


class Jumps(Layers):
    def forward(self, x: Any, edge_index: Any) -> Any:
        hidden = self.conv1(x, edge_index)
        return torch.cat([hidden, self.conv2(hidden.relu(), edge_index)], 1)  # jumps


class Branches(Layers):
    def forward(self, x: Any, edge_index: Any) -> Any:
        if x.sum() > 0:  # branches
            return self.conv1(x, edge_index)
        return x


class Residual(Layers):
    def forward(self, x: Any, edge_index: Any) -> Any:
        hidden = self.conv1(x, edge_index).relu()
        return hidden + hidden.tanh()  # residual


class Drops(Layers):
    def forward(self, x: Any, edge_index: Any) -> Any:
        return F.dropout(self.conv1(x, edge_index))  # drops


class Weighs(Layers):
    def forward(self, x: Any, edge_index: Any, weight: Any) -> Any:
        return self.conv1(x, edge_index, weight)  # weighs


class Pools(Layers):
    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.conv1(x, edge_index).mean(0)  # pools


class Own(pyg.MessagePassing):  # type: ignore[misc]
    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.propagate(edge_index, x=x)


class HasOwn(Layers):
    def __init__(self) -> None:
        super().__init__()
        self.own = Own()

    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.own(x, edge_index)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Jumps, r"test_traced.py, line \d+ \(.*# jumps\): "),
        (Branches, r"test_traced.py, line \d+ \(.*# branches\): forward\(\) of Branches cannot be traced"),
        (Residual, r"# residual\): add\(\) reads the results of several steps"),
        (Drops, r"# drops\): dropout\(\) also drops in inference: give it training=self.training"),
        (Weighs, r"# weighs\): self.conv1 reads weight, so use from_pyg\(edge_weight=True\)"),
        (Pools, r"# pools\): mean\(\) is not supported; supported functions are relu, tanh"),
        (HasOwn, "own: Own is not supported; supported are GATConv"),
    ],
)
def test_what_is_no_chain_is_refused_with_its_line(model: type[nn.Module], message: str) -> None:
    with pytest.raises(UnsupportedModelError, match=message) as caught:
        from_pyg(model())
    assert "\n" not in str(caught.value)
    if model is not HasOwn:
        assert re.search("Supported is a chain of layers.*PyG's Sequential", str(caught.value))
