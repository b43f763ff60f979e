"""The contract of all layers; new ones are found automatically."""

from __future__ import annotations

import copy
import importlib
import inspect
import json
import pkgutil
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor, nn

import d3gnn.nn
from d3gnn import LocalEngine
from d3gnn.events import EdgeMode
from d3gnn.kernel.operators import edge as edge_operator
from d3gnn.nn import GNN, GATConv, GINConv, Layer, SAGEConv, Stage, from_pyg
from d3gnn.nn.layer import DEGREE_WIDTH, Affine, layer_config, make_layer
from d3gnn.nn.models import two_linear
from d3gnn.oracle import Oracle, relative_error
from d3gnn.testing import OracleChecker, event_batches, random_batches
from d3gnn.testing.pyg_cases import CASES, Case, schema_of, static
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


ALL = [
    pytest.param(case, id=f"{kind}-{name}") for kind, cases in CASES.items() for name, case in cases.items()
]


def test_no_layer_is_exempt() -> None:
    assert set(CASES) == {kind.type_name for kind in kinds()}


def check(case: Case, model: nn.Module, engine: LocalEngine, oracle: Oracle) -> None:
    expected = static(case, model, oracle)
    assert sorted(map(str, engine.ids().to_list())) == sorted(map(str, expected))
    if expected:
        ids = list(expected)
        error = relative_error(engine.embeddings(ids), np.stack([expected[id] for id in ids]))
        assert error <= case.tolerance


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
