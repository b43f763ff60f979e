"""Custom layers with messages of source, destination and edge, compared with PyG's."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, cast

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg
from hypothesis import given, settings
from torch import Tensor, nn

from d3gnn import GraphSchema, LocalEngine
from d3gnn.kernel.operators import edge as edge_operator
from d3gnn.nn import GNN, Layer, Stage
from d3gnn.oracle import relative_error
from d3gnn.testing import OracleChecker, event_batches, random_batches


class EdgeNet(Layer):
    """The maximum of a network's output for a vertex and its difference to each neighbour (`EdgeConv`)."""

    aggr = "max"
    reads_destination = True

    def __init__(self, in_width: int, out_width: int) -> None:
        super().__init__()
        self.in_width = self.message_width = in_width
        self.out_width = self.edge_message_width = out_width
        self.root_width = 1
        self.net = nn.Sequential(nn.Linear(2 * in_width, out_width), nn.Tanh())

    def message(self, x: Tensor) -> Tensor:
        return x

    def root(self, x: Tensor) -> Tensor:
        return x.new_zeros((len(x), 1))

    def edge_message(self, source: Tensor, destination: Tensor, edge: Tensor) -> Tensor:
        out: Tensor = self.net(torch.cat([destination, source - destination], 1))
        return out

    def update(self, root: Tensor, aggregate: Tensor) -> Tensor:
        return aggregate


class EdgeSum(Layer):
    """Sums of neighbours and edges through a relu (`GINEConv`)."""

    aggr = "sum"

    def __init__(self, in_width: int, out_width: int) -> None:
        super().__init__()
        self.in_width = self.message_width = self.root_width = self.edge_message_width = in_width
        self.out_width, self.edge_dim, self.edge_width, self.sends_input = out_width, 2, in_width, True
        self.lin_edge, self.net = nn.Linear(2, in_width), nn.Linear(in_width, out_width)

    def message(self, x: Tensor) -> Tensor:
        return x

    def root(self, x: Tensor) -> Tensor:
        return x

    def edge(self, features: Tensor) -> Tensor:
        out: Tensor = self.lin_edge(features)
        return out

    def edge_message(self, source: Tensor, destination: Tensor, edge: Tensor) -> Tensor:
        return torch.relu(source + edge)

    def update(self, root: Tensor, aggregate: Tensor) -> Tensor:
        out: Tensor = self.net(root + aggregate)
        return out


class Case(NamedTuple):
    layer: Callable[[int, int], Layer]
    conv: Callable[[Any], nn.Module]
    edge_width: int


CASES = {
    "EdgeConv": Case(EdgeNet, lambda layer: edge_conv(layer), 0),
    "GINEConv": Case(EdgeSum, lambda layer: gine(layer), 2),
    "staged": Case(lambda i, o: Stage(EdgeNet(i, o), nn.Identity()), lambda stage: edge_conv(stage.layer), 0),
}


def edge_conv(layer: EdgeNet) -> nn.Module:
    made: Any = pyg.EdgeConv(copy.deepcopy(layer.net), aggr="max")
    made.nn.load_state_dict(layer.net.state_dict())  # PyG resets it
    return cast(nn.Module, made)


def gine(layer: EdgeSum) -> nn.Module:
    made: Any = pyg.GINEConv(copy.deepcopy(layer.net), edge_dim=2)
    made.nn.load_state_dict(layer.net.state_dict())
    made.lin.load_state_dict(layer.lin_edge.state_dict())
    return cast(nn.Module, made)


def check(case: Case, model: GNN, checker: OracleChecker) -> None:
    oracle, ids = checker.oracle, checker.oracle.vertices
    if not ids:
        return
    x = torch.from_numpy(oracle.inputs())
    more = [torch.nan_to_num(torch.from_numpy(oracle.edge_values()))] if case.edge_width else []
    with torch.inference_mode():
        for layer in model.layers:
            x = case.conv(layer)(x, torch.from_numpy(np.stack(oracle.edge_index())), *more)
    assert relative_error(checker.engine.embeddings(ids), x.numpy()) <= 1e-5


def start(case: Case, parts: int, edges: Any = "simple") -> tuple[GNN, OracleChecker]:
    torch.manual_seed(1)
    model = GNN([case.layer(3, 4), case.layer(4, 2)])
    on_edges = {"x": case.edge_width} if case.edge_width else {}
    schema = GraphSchema(edges=edges, features={"x": 3}, edge_features=on_edges)
    return model, OracleChecker(LocalEngine(model, parts=parts, schema=schema))


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=12)
@given(data=st.data())
def test_streams_equal_pyg(name: str, data: st.DataObject) -> None:
    edges = data.draw(st.sampled_from(["simple", "multi"]))
    model, checker = start(CASES[name], data.draw(st.integers(1, 3), "parts"), edges)
    for batch in data.draw(event_batches(checker.engine.schema, "int"), "batches"):
        checker.apply(batch)
    check(CASES[name], model, checker)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("pulls", [True, False])
def test_longer_streams_equal_pyg(name: str, pulls: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edge_operator, "prefers_pull", lambda *_: pulls)
    monkeypatch.setattr("d3gnn.kernel.aggregators.per_edge._CHUNK", 16)
    model, checker = start(CASES[name], 2)
    schema = checker.engine.schema
    for batch in random_batches(schema, seed=5, n_batches=8, batch_size=60, n_vertices=30):
        checker.apply(batch)
    check(CASES[name], model, checker)


def test_a_custom_layer_is_saved_by_its_arguments(tmp_path: Path) -> None:
    torch.manual_seed(1)
    model = GNN([EdgeNet(3, 4), Stage(EdgeNet(4, 2), nn.Tanh())])
    model.save(tmp_path / "model")
    loaded = GNN.load(tmp_path / "model")
    assert loaded.digest == model.digest
    assert model.config()["layers"][0] == {"type": "EdgeNet", "in_width": 3, "out_width": 4}

    class Forgetful(EdgeNet):
        def __init__(self, width: int) -> None:
            super().__init__(width, width)

    with pytest.raises(NotImplementedError, match="Forgetful has no attribute 'width'"):
        GNN([Forgetful(3)]).config()
