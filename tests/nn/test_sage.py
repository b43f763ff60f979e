"""GraphSAGE equals PyG's in streaming, and its messages are as narrow as possible."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch_geometric.nn import SAGEConv as PyGSAGEConv

from d3gnn import GraphSchema, LocalEngine
from d3gnn.nn import GNN, GraphSAGE, SAGEConv
from d3gnn.nn.activation import activate
from d3gnn.nn.models import sage_from_widths
from d3gnn.oracle import Oracle
from d3gnn.testing import random_batches
from d3gnn.types import Floats


def geometric(layer: SAGEConv) -> PyGSAGEConv:
    """PyG's layer with the same weights."""
    conv = PyGSAGEConv(layer.in_width, layer.out_width, aggr=layer.aggr)
    conv.load_state_dict(layer.state_dict())
    return conv


def geometric_embeddings(model: GNN, oracle: Oracle, activation: str | None) -> Floats:
    index = torch.from_numpy(np.stack(oracle.edge_index()))
    with torch.inference_mode():
        x = torch.from_numpy(oracle.inputs())
        for i, layer in enumerate(model.layers):
            assert isinstance(layer, SAGEConv)
            x = geometric(layer)(x, index)
            if i < len(model.layers) - 1:
                x = activate(activation, x)
        out: Floats = x.numpy()
        return out


@pytest.mark.parametrize("aggregator", ["sum", "mean"])
@pytest.mark.parametrize(
    ("widths", "activation"),
    [([5, 3], "relu"), ([3, 8, 4], "relu"), ([4, 4, 2, 6], "tanh"), ([3, 6, 3], "elu")],
)
def test_streaming_equals_pyg(widths: list[int], activation: str, aggregator: str) -> None:
    schema = GraphSchema(edges="multi", features={"x": widths[0]})
    model = sage_from_widths(widths, aggregator, activation, seed=3)
    engine, oracle = LocalEngine(model, parts=2, schema=schema), Oracle(schema)
    for batch in random_batches(schema, seed=8, n_batches=8, batch_size=50, n_vertices=30):
        engine.apply(batch)
        oracle.apply(batch)
    expected = geometric_embeddings(model, oracle, activation)
    got = engine.embeddings(oracle.vertices)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize(("in_width", "out_width"), [(8, 3), (3, 8), (4, 4)])
def test_messages_and_roots_are_as_narrow_as_possible(in_width: int, out_width: int) -> None:
    layer = SAGEConv(in_width, out_width)
    assert layer.message_width == layer.root_width == min(in_width, out_width)
    # An unchanged value is sent once; otherwise message and root differ.
    assert layer.sends_input == (in_width <= out_width)


def test_a_seed_gives_the_same_weights_and_leaves_the_generator_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    a, b, c = GraphSAGE(3, 4, 1, seed=1), GraphSAGE(3, 4, 1, seed=1), GraphSAGE(3, 4, 1, seed=2)
    assert torch.equal(torch.rand(1), expected)
    for name, weight in a.state_dict().items():
        assert torch.equal(weight, b.state_dict()[name])
    assert not torch.equal(a.state_dict()["_layers.0.lin_l.weight"], c.state_dict()["_layers.0.lin_l.weight"])


def test_the_activation_is_applied_between_layers_only() -> None:
    layers = sage_from_widths([2, 3, 4, 5], act="tanh").layers
    assert [layer.config()["act"] for layer in layers] == ["tanh", "tanh", None]
    assert [layer.config()["act"] for layer in GraphSAGE(2, 3, 1, act="tanh").layers] == [None]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SAGEConv(2, 2, "median"), r"aggr='median': use one of sum, mean, max, min"),
        (lambda: SAGEConv(0, 2), r"in_channels=0: it must be at least 1"),
        (lambda: SAGEConv(2, -1), r"out_channels=-1: it must be at least 1"),
        (
            lambda: SAGEConv(2, 2, act="gelu"),
            r"act='gelu': choose one of relu, tanh, elu, None",
        ),
        (lambda: sage_from_widths([3]), r"widths=\[3\]: the width of the input and of at least one layer"),
        (lambda: sage_from_widths([]), r"widths=\[\]"),
    ],
)
def test_wrong_arguments_are_refused(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match=message):
        make()
