"""Models have the arguments, widths and numbers of PyG's models of the same names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn

from d3gnn import LocalEngine
from d3gnn.nn import GAT, GCN, GIN, GNN, Classifier, GATConv, GATv2Conv, GraphSAGE, SAGEConv, from_pyg

MODELS: dict[str, Callable[..., GNN]] = {"GraphSAGE": GraphSAGE, "GCN": GCN, "GIN": GIN, "GAT": GAT}
SETTINGS: list[dict[str, Any]] = [{}, {"jk": "cat"}, {"jk": "max"}, {"jk": "last"}, {"act": None}]
CASES: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    (name, widths, settings)
    for name in MODELS
    for widths in [(5, 8, 1), (5, 8, 1, 3), (5, 8, 2), (5, 8, 2, 3), (5, 8, 3, 4)]
    for settings in SETTINGS
]
CASES += [
    ("GAT", (5, 8, 3, 4), {"heads": 2}),
    ("GAT", (5, 8, 3), {"heads": 4, "v2": True}),
    ("GAT", (5, 8, 2, 3), {"heads": 2, "concat": False}),
    ("GAT", (5, 8, 2, 3), {"heads": 2, "jk": "cat", "residual": True}),
    ("GAT", (5, 8, 2, 3), {"heads": 2, "add_self_loops": False, "negative_slope": 0.1}),
    ("GraphSAGE", (5, 8, 2, 3), {"aggr": "max", "normalize": True}),
    ("GraphSAGE", (5, 8, 2, 3), {"aggr": ["mean", "max"], "project": True}),
    ("GraphSAGE", (5, 8, 2, 3), {"root_weight": False, "bias": False}),
    ("GCN", (5, 8, 2, 3), {"improved": True, "bias": False}),
    ("GCN", (5, 8, 2, 3), {"add_self_loops": False}),
    ("GIN", (5, 8, 2, 3), {"aggr": "max", "eps": 0.5, "train_eps": True}),
]


def graph() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(12, 5, generator=generator), torch.randint(0, 12, (2, 40), generator=generator)


@pytest.mark.parametrize(("name", "widths", "settings"), CASES)
def test_a_model_is_that_of_pyg(name: str, widths: tuple[int, ...], settings: dict[str, Any]) -> None:
    torch.manual_seed(3)
    theirs: nn.Module = getattr(pyg, name)(*widths, **settings).eval()
    converted = from_pyg(theirs)
    model = MODELS[name](*widths, **settings).eval()
    weights = list(converted.state_dict().values())
    assert [w.shape for w in model.state_dict().values()] == [w.shape for w in weights]
    model.load_state_dict(dict(zip(model.state_dict(), weights, strict=True)))
    x, edge_index = graph()
    with torch.inference_mode():
        expected = theirs(x, edge_index)
        torch.testing.assert_close(model(x, edge_index), expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(converted(x, edge_index), expected, rtol=1e-4, atol=1e-5)
    assert model.out_channels == expected.shape[1]


def test_a_seed_gives_the_same_weights() -> None:
    for make in MODELS.values():
        a, b, c = make(3, 4, 2, seed=1), make(3, 4, 2, seed=1), make(3, 4, 2, seed=2)
        assert a.digest == b.digest != c.digest


def test_heads_and_edge_features_are_passed_on() -> None:
    head = Classifier()
    assert GCN(3, 4, 2, head=head, edge_weight=True).head is head
    assert GCN(3, 4, 2, edge_weight=True).edge_dim == 1
    assert GAT(3, 4, 2, edge_dim=5).edge_dim == 5


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GraphSAGE(3, 4, 0), "num_layers=0: must be an integer of at least 1"),
        (lambda: GraphSAGE(3, 0, 1), "out_channels=0: it must be at least 1"),
        (lambda: GCN(3, 4, 2, jk="lstm"), "jk='lstm': choose one of None, last, cat, max"),
        (lambda: GIN(3, 4, 2, act="gelu"), "act='gelu': choose one of relu, tanh, elu, None"),
        (lambda: GIN(3, 4, 2, aggr="mean,max"), "GINConv takes a single aggregation"),
        (lambda: GAT(3, 4, 2, heads=3), "hidden_channels=4 cannot be divided among heads=3"),
        (lambda: GAT(3, 4, 2, fill_value="max"), "fill_value='max': use 'mean' or a number"),
        (lambda: GCN(3, 4, 2, normalize=False, add_self_loops=True), "add_self_loops=True needs normalize"),
    ],
)
def test_wrong_arguments_are_refused(make: Callable[[], GNN], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("name", MODELS)
def test_arguments_that_only_pyg_has_are_named(name: str) -> None:
    make = MODELS[name]
    assert make(3, 4, 2, dropout=0.0, norm=None, seed=1).digest == make(3, 4, 2, seed=1).digest
    with pytest.raises(
        TypeError, match=rf"{name}\(\) does not take dropout=0.5, norm='batch_norm'.*from_pyg"
    ):
        make(3, 4, 2, dropout=0.5, norm="batch_norm")


def test_models_and_layers_of_pyg_must_be_converted() -> None:
    with pytest.raises(TypeError, match=r"the model is a torch_geometric.*GraphSAGE.*from_pyg\(model\)"):
        LocalEngine(pyg.GraphSAGE(3, 4, 2))
    with pytest.raises(TypeError, match=r"layer 1 is a torch_geometric.*SAGEConv"):
        GNN([pyg.SAGEConv(3, 4)])
    with pytest.raises(TypeError, match=r"in_channels=\(3, 3\): it must be an integer"):
        SAGEConv((3, 3), 4)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: GATConv(4, 8, dropout=0.6),
            r"GATConv\(\) does not take dropout=0.6: .*is for training",
        ),
        (lambda: GATv2Conv(4, 8, dropout=0.6), r"GATv2Conv\(\) does not take dropout=0.6: .*from_pyg"),
        (lambda: GATConv(4, 8, head=2), r"GATConv\(\) got an unexpected keyword argument 'head'"),
    ],
)
def test_why_there_is_no_dropout(make: Callable[[], object], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        make()
    assert GATConv(4, 8, dropout=0.0).config() == GATConv(4, 8).config()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GraphSAGE(4, 8, "2"), "num_layers='2': must be an integer of at least 1"),  # type: ignore[arg-type]
        (lambda: GATConv(4, 8, heads="2"), "heads='2': must be an integer of at least 1"),  # type: ignore[arg-type]
    ],
)
def test_numbers_as_text_are_named(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
