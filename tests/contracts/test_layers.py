"""The contract of all layers; new ones are found automatically."""

from __future__ import annotations

import copy
import importlib
import inspect
import json
import pkgutil
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg
from hypothesis import given, settings
from torch import Tensor, nn

import d3gnn.nn
from d3gnn import GraphSchema, LocalEngine
from d3gnn.events import EdgeMode
from d3gnn.kernel.operators import edge as edge_operator
from d3gnn.nn import GNN, GATConv, GINConv, Layer, SAGEConv, Stage, from_pyg
from d3gnn.nn.layer import DEGREE_WIDTH, Affine, layer_config, make_layer
from d3gnn.nn.models import two_linear
from d3gnn.oracle import Oracle, relative_error
from d3gnn.testing import OracleChecker, event_batches, random_batches
from d3gnn.testing.streams import positive

WIDTHS = [(3, 5), (5, 3)]
#: Values for a constructor's arguments, by name; others keep their defaults.
CHOICES: dict[str, list[Any]] = {
    "aggr": ["sum", "mean", "mean,min"],
    "act": [None, "relu"],
    "bias": [True, False],
}


def kinds() -> list[type[Layer]]:
    """All public layer classes."""
    for module in pkgutil.iter_modules(d3gnn.nn.__path__, "d3gnn.nn."):
        importlib.import_module(module.name)
    found: list[type[Layer]] = []
    unvisited: list[type[Layer]] = [Layer]
    while unvisited:
        below = [kind for kind in unvisited.pop().__subclasses__() if kind.__module__.startswith("d3gnn.")]
        found += [kind for kind in below if kind.__name__ in d3gnn.nn.__all__]
        unvisited += below
    return sorted(found, key=lambda kind: kind.type_name)


def configurations() -> Iterator[Layer]:
    for kind in kinds():
        if kind is Stage:
            yield from stages()
            continue
        parameters = inspect.signature(kind).parameters
        choices = {name: values for name, values in CHOICES.items() if name in parameters}
        for (in_width, out_width), *others in product(WIDTHS, *choices.values()):
            torch.manual_seed(1)
            arguments = dict(zip(choices, others, strict=True))
            try:
                if kind is GINConv:
                    yield GINConv(two_linear(in_width, out_width), **arguments)
                else:
                    yield kind(in_width, out_width, **arguments)
            except ValueError as refused:
                assert "a single aggregation" in str(refused)  # noqa: PT017


def stages() -> Iterator[Layer]:
    torch.manual_seed(1)
    yield Stage(SAGEConv(3, 5), nn.Tanh())
    yield Stage(GINConv(two_linear(4, 4)), nn.Sequential(nn.LayerNorm(4), nn.ReLU()), residual=True)
    yield Stage(SAGEConv(5, 3), nn.ELU(), carried=2, keep="cat")
    yield Stage(GATConv(4, 2, heads=2), carried=4, keep="max", final=nn.Linear(8, 3))


def name_of(layer: Layer) -> str:
    return layer.type_name + "-" + "-".join(str(value)[:12] for value in layer.config().values())


every = pytest.mark.parametrize("layer", list(configurations()), ids=name_of)


def test_layers_are_found() -> None:
    assert kinds()
    assert len({kind.type_name for kind in kinds()}) == len(kinds())
    assert all(kind.__doc__ for kind in kinds())


def inputs(layer: Layer, n: int) -> Tensor:
    width = layer.in_width + (DEGREE_WIDTH if layer.needs_degree else 0)
    x = torch.randn(n, width, generator=torch.Generator().manual_seed(n))
    if layer.needs_degree:
        x[:, -DEGREE_WIDTH:] = x[:, -DEGREE_WIDTH:].abs() + 1
    return x


def outputs(layer: Layer, x: Tensor) -> list[Tensor]:
    """Message, root and update of every row, where a row's aggregate is its own message, repeated."""
    with torch.inference_mode():
        message, root = layer.message(x), layer.root(x)
        aggregate = message.repeat(1, -(-layer.aggregate_width // layer.message_width))
        return [message, root, layer.update(root, aggregate[:, : layer.aggregate_width].abs())]


@every
def test_widths_are_as_declared(layer: Layer) -> None:
    expected = [layer.message_width, layer.root_width, layer.out_width]
    for n in (0, 1, 7):
        out = outputs(layer, inputs(layer, n))
        assert [tuple(o.shape) for o in out] == [(n, width) for width in expected]
        assert {o.dtype for o in out} == {torch.float32}


def affine(layer: Layer) -> Affine | None:
    return layer.affine


@every
def test_the_affine_form_equals_the_update(layer: Layer) -> None:
    root, aggregate = torch.randn(9, layer.root_width), torch.randn(9, layer.aggregate_width)
    assert affine(layer) is None, "before the weights are prepared"
    layer.prepare()
    if found := affine(layer):
        left, right, bias, relu = found
        expected = aggregate.numpy() @ left + root.numpy() @ right + bias
        expected = np.maximum(expected, 0) if relu else expected
        with torch.inference_mode():
            np.testing.assert_allclose(layer.update(root, aggregate).numpy(), expected, rtol=1e-5, atol=1e-6)
    layer.train()
    assert affine(layer) is None, "when the weights are about to change"
    layer.eval()


@every
def test_messages_are_as_narrow_as_possible(layer: Layer) -> None:
    if layer.aggr in ("sum", "mean") and not isinstance(layer, Stage):
        assert layer.message_width <= min(layer.in_width, layer.out_width)


@every
def test_rows_are_independent(layer: Layer) -> None:
    x = inputs(layer, 9)
    order = torch.tensor([4, 0, 8, 4])
    for whole, some in zip(outputs(layer, x), outputs(layer, x[order]), strict=True):
        torch.testing.assert_close(some, whole[order])


@every
def test_a_layer_that_sends_its_value_declares_it(layer: Layer) -> None:
    x = inputs(layer, 5)
    message, root, _ = outputs(layer, x)
    if layer.sends_input:
        assert torch.equal(message, x)
        assert torch.equal(root, x)


@every
def test_it_is_created_again_from_its_configuration(layer: Layer) -> None:
    plain = json.loads(json.dumps(layer_config(layer)))
    again = make_layer(plain)
    assert type(again) is type(layer)
    assert again.config() == layer.config()
    assert repr(again) == repr(layer)
    assert [(n, w.shape) for n, w in again.state_dict().items()] == [
        (n, w.shape) for n, w in layer.state_dict().items()
    ]


@every
def test_a_saved_layer_gives_the_same_outputs(layer: Layer, tmp_path: Path) -> None:
    GNN([layer]).save(tmp_path / "model")
    torch.manual_seed(77)
    loaded = GNN.load(tmp_path / "model").layers[0]
    x = inputs(layer, 6)
    for expected, got in zip(outputs(layer, x), outputs(loaded, x), strict=True):
        assert torch.equal(got, expected)


@every
def test_prepare_does_not_change_outputs(layer: Layer) -> None:
    x = inputs(layer, 6)
    before = outputs(layer, x)
    prepared = copy.deepcopy(layer).eval()
    prepared.prepare()
    for expected, got in zip(before, outputs(prepared, x), strict=True):
        torch.testing.assert_close(got, expected)
    prepared.train()
    with torch.no_grad():
        for weight in prepared.parameters():
            weight.add_(0.25)
    prepared.eval().prepare()
    assert not torch.allclose(outputs(prepared, x)[2], before[2])


# ------------------------------------------------------------------ compared with PyG


class Case(NamedTuple):
    """A model of PyG, and the features of its edges."""

    make: Callable[[], nn.Module]
    edge_weight: bool = False
    edge_width: int = 0
    tolerance: float = 1e-5


def two(conv: Callable[[int, int], nn.Module], **kwargs: Any) -> Case:
    """Two layers of one type, with 3, 4 and 2 channels."""
    beside = "edge_weight" if kwargs.get("edge_weight") else "edge_attr" if kwargs.get("edge_width") else ""
    signature = f"x, edge_index{', ' + beside if beside else ''} -> x"
    arguments = f"x, edge_index{', ' + beside if beside else ''}"

    def make() -> nn.Module:
        made: nn.Module = pyg.Sequential(
            arguments, [(conv(3, 4), signature), nn.Tanh(), (conv(4, 2), signature)]
        )
        return made

    return Case(make, **kwargs)


def basic(kind: str, **settings: Any) -> Case:
    def make() -> nn.Module:
        model: nn.Module = getattr(pyg, kind)(3, 4, num_layers=3, out_channels=2, **settings)
        for module in model.modules():
            if isinstance(module, nn.BatchNorm1d):
                assert module.running_mean is not None
                assert module.running_var is not None
                module.running_mean.uniform_(-0.2, 0.2)
                module.running_var.uniform_(0.5, 1.5)
        return model

    return Case(make, tolerance=1e-4 if kind == "GAT" else 1e-5)


def mlp(i: int, o: int) -> nn.Module:
    return nn.Sequential(nn.Linear(i, 3), nn.ELU(), nn.Linear(3, o))


ATTENTION = 1e-4
#: For each layer, every variant that PyG has.
CASES: dict[str, dict[str, Case]] = {
    "SAGEConv": {
        "mean": two(lambda i, o: pyg.SAGEConv(i, o)),
        "sum": two(lambda i, o: pyg.SAGEConv(i, o, aggr="sum")),
        "max": two(lambda i, o: pyg.SAGEConv(i, o, aggr="max")),
        "min": two(lambda i, o: pyg.SAGEConv(i, o, aggr="min")),
        "several": two(lambda i, o: pyg.SAGEConv(i, o, aggr=["mean", "max", "add"])),
        "normalize": two(lambda i, o: pyg.SAGEConv(i, o, normalize=True)),
        "no root": two(lambda i, o: pyg.SAGEConv(i, o, root_weight=False, bias=False)),
        "project": two(lambda i, o: pyg.SAGEConv(i, o, project=True)),
        "max, project, no root": two(
            lambda i, o: pyg.SAGEConv(i, o, aggr="max", project=True, root_weight=False)
        ),
    },
    "GCNConv": {
        "plain": two(lambda i, o: pyg.GCNConv(i, o)),
        "improved": two(lambda i, o: pyg.GCNConv(i, o, improved=True)),
        "no loops": two(lambda i, o: pyg.GCNConv(i, o, add_self_loops=False, bias=False)),
        "not normalised": two(lambda i, o: pyg.GCNConv(i, o, normalize=False)),
        "weighted": two(lambda i, o: pyg.GCNConv(i, o), edge_weight=True),
        "weighted, improved": two(lambda i, o: pyg.GCNConv(i, o, improved=True), edge_weight=True),
        "weighted, no loops": two(lambda i, o: pyg.GCNConv(i, o, add_self_loops=False), edge_weight=True),
        "weighted, not normalised": two(lambda i, o: pyg.GCNConv(i, o, normalize=False), edge_weight=True),
    },
    "GraphConv": {
        "sum": two(lambda i, o: pyg.GraphConv(i, o)),
        "mean": two(lambda i, o: pyg.GraphConv(i, o, aggr="mean", bias=False)),
        "max": two(lambda i, o: pyg.GraphConv(i, o, aggr="max")),
        "weighted": two(lambda i, o: pyg.GraphConv(i, o), edge_weight=True),
        "weighted mean": two(lambda i, o: pyg.GraphConv(i, o, aggr="mean"), edge_weight=True),
        "weighted max": two(lambda i, o: pyg.GraphConv(i, o, aggr="max"), edge_weight=True),
    },
    "GINConv": {
        "plain": two(lambda i, o: pyg.GINConv(mlp(i, o))),
        "eps": two(lambda i, o: pyg.GINConv(mlp(i, o), eps=0.3, train_eps=True)),
        "max": two(lambda i, o: pyg.GINConv(mlp(i, o), aggr="max")),
    },
    "GATConv": {
        "one head": two(lambda i, o: pyg.GATConv(i, o), tolerance=ATTENTION),
        "heads": two(lambda i, o: pyg.GATConv(i, o // 2, heads=2), tolerance=ATTENTION),
        "mean of heads": two(lambda i, o: pyg.GATConv(i, o, heads=3, concat=False), tolerance=ATTENTION),
        "no loops": two(lambda i, o: pyg.GATConv(i, o, add_self_loops=False), tolerance=ATTENTION),
        "residual": two(lambda i, o: pyg.GATConv(i, o, residual=True, bias=False), tolerance=ATTENTION),
        "edges": two(
            lambda i, o: pyg.GATConv(i, o // 2, heads=2, edge_dim=2), edge_width=2, tolerance=ATTENTION
        ),
        "edges, filled": two(
            lambda i, o: pyg.GATConv(i, o, edge_dim=2, fill_value=0.5), edge_width=2, tolerance=ATTENTION
        ),
    },
    "GATv2Conv": {
        "one head": two(lambda i, o: pyg.GATv2Conv(i, o), tolerance=ATTENTION),
        "heads": two(lambda i, o: pyg.GATv2Conv(i, o // 2, heads=2), tolerance=ATTENTION),
        "shared": two(
            lambda i, o: pyg.GATv2Conv(i, o, heads=2, concat=False, share_weights=True), tolerance=ATTENTION
        ),
        "no loops": two(lambda i, o: pyg.GATv2Conv(i, o, add_self_loops=False), tolerance=ATTENTION),
        "residual": two(lambda i, o: pyg.GATv2Conv(i, o, residual=True), tolerance=ATTENTION),
        "edges": two(
            lambda i, o: pyg.GATv2Conv(i, o // 2, heads=2, edge_dim=2), edge_width=2, tolerance=ATTENTION
        ),
        "edges, filled": two(
            lambda i, o: pyg.GATv2Conv(i, o, edge_dim=2, fill_value=0.5), edge_width=2, tolerance=ATTENTION
        ),
    },
    "Stage": {
        "GraphSAGE": basic("GraphSAGE", norm="batch_norm"),
        "GraphSAGE, activation first": basic("GraphSAGE", norm="batch_norm", act_first=True, act="elu"),
        "GraphSAGE, cat": basic("GraphSAGE", jk="cat"),
        "GraphSAGE, max": basic("GraphSAGE", jk="max"),
        "GraphSAGE, last": basic("GraphSAGE", jk="last", norm="batch_norm"),
        "GCN": basic("GCN", norm="batch_norm", dropout=0.5),
        "GCN, cat": basic("GCN", jk="cat"),
        "GIN": basic("GIN", norm="batch_norm"),
        "GIN, max": basic("GIN", jk="max"),
        "GAT": basic("GAT", heads=2),
        "GAT, cat": basic("GAT", heads=2, jk="cat", v2=True),
    },
}
ALL = [
    pytest.param(case, id=f"{kind}-{name}") for kind, cases in CASES.items() for name, case in cases.items()
]


def test_no_layer_is_exempt() -> None:
    assert set(CASES) == {kind.type_name for kind in kinds()}


def static(case: Case, model: nn.Module, oracle: Oracle) -> dict[Any, Any]:
    """The output of PyG for the final graph."""
    src, dst = oracle.edge_index()
    arguments: list[Tensor] = [torch.from_numpy(oracle.inputs()), torch.from_numpy(np.stack([src, dst]))]
    if case.edge_weight or case.edge_width:
        values = torch.from_numpy(oracle.edge_values())
        values = torch.where(values.isnan(), 1.0 if case.edge_weight else 0.0, values)
        if case.edge_weight:
            heaviest_loops_last = torch.argsort(values[:, 0], stable=True)
            arguments[1], values = arguments[1][:, heaviest_loops_last], values[heaviest_loops_last]
        arguments.append(values[:, 0] if case.edge_weight else values)
    with torch.inference_mode():
        out = model(*arguments).numpy()
    return dict(zip(oracle.vertices, out, strict=True))


def check(case: Case, model: nn.Module, engine: LocalEngine, oracle: Oracle) -> None:
    expected = static(case, model, oracle)
    assert sorted(map(str, engine.ids().to_list())) == sorted(map(str, expected))
    if expected:
        ids = list(expected)
        error = relative_error(engine.embeddings(ids), np.stack([expected[id] for id in ids]))
        assert error <= case.tolerance


def schema_of(case: Case, edges: EdgeMode, directed: bool) -> GraphSchema:
    features = {"w": 1} if case.edge_weight else {"e": case.edge_width} if case.edge_width else {}
    return GraphSchema(
        edges=edges, directed=directed, features={"x": 3}, edge_features=features, missing="hash"
    )


def trained(case: Case) -> nn.Module:
    torch.manual_seed(3)
    return case.make().eval()


@pytest.mark.parametrize("case", ALL)
@settings(max_examples=6)
@given(data=st.data())
def test_streams_equal_pyg(case: Case, data: st.DataObject) -> None:
    model = trained(case)
    edges: EdgeMode = data.draw(st.sampled_from(["simple", "multi"]), "edges")
    schema = schema_of(case, edges, data.draw(st.booleans(), "directed"))
    converted = from_pyg(model, edge_weight=case.edge_weight)
    engine = LocalEngine(converted, parts=data.draw(st.integers(1, 3), "parts"), schema=schema)
    checker = OracleChecker(engine, tolerance=case.tolerance)
    for batch in data.draw(event_batches(engine.schema, "int"), "batches"):
        checker.apply(positive(batch) if case.edge_weight else batch)
    check(case, model, engine, checker.oracle)


@pytest.mark.parametrize("case", ALL)
@pytest.mark.parametrize("pulls", [True, False])
def test_longer_streams_equal_pyg_before_and_after_a_save(
    case: Case, pulls: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edge_operator, "prefers_pull", lambda *_: pulls)
    model = trained(case)
    schema = schema_of(case, "multi" if pulls else "simple", True)
    engine = LocalEngine(from_pyg(model, edge_weight=case.edge_weight), parts=3, schema=schema)
    checker = OracleChecker(engine, tolerance=case.tolerance)
    for batch in random_batches(engine.schema, seed=4, n_batches=10, batch_size=60, n_vertices=30):
        checker.apply(positive(batch) if case.edge_weight else batch)
    check(case, model, engine, checker.oracle)
    engine.save(tmp_path)
    check(case, model, LocalEngine.load(tmp_path), checker.oracle)
