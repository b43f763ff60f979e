"""What every layer promises; those that are added are found here by themselves."""

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

import numpy as np
import pytest
import torch
from torch import Tensor

import d3gnn.nn
from d3gnn import GraphSchema, LocalEngine
from d3gnn.kernel.aggregators import aggregator, aggregators
from d3gnn.kernel.operators import edge as edge_operator
from d3gnn.nn import GNN, Layer
from d3gnn.nn.layer import Affine, make_layer
from d3gnn.testing import Witness, random_batches

WIDTHS = [(3, 5), (5, 3), (4, 4), (1, 1)]
#: What a constructor's parameter may be tried with, by its name; others keep their defaults.
CHOICES: dict[str, list[Any]] = {
    "aggregator": [a.name for a in aggregators()],
    "activation": [None, "relu", "tanh"],
}


def kinds() -> list[type[Layer]]:
    """Every layer class of the package."""
    for module in pkgutil.iter_modules(d3gnn.nn.__path__, "d3gnn.nn."):
        importlib.import_module(module.name)
    found: list[type[Layer]] = []
    waiting = [Layer]
    while waiting:
        below = [kind for kind in waiting.pop().__subclasses__() if kind.__module__.startswith("d3gnn.")]
        found += below
        waiting += below
    return sorted(found, key=lambda kind: kind.kind)


def configurations() -> Iterator[Layer]:
    for kind in kinds():
        parameters = inspect.signature(kind).parameters
        choices = {name: values for name, values in CHOICES.items() if name in parameters}
        for (in_width, out_width), *others in product(WIDTHS, *choices.values()):
            torch.manual_seed(1)
            yield kind(in_width, out_width, **dict(zip(choices, others, strict=True)))


def name_of(layer: Layer) -> str:
    return layer.kind + "-" + "-".join(str(value) for value in layer.config().values())


every = pytest.mark.parametrize("layer", list(configurations()), ids=name_of)


def test_there_are_layers() -> None:
    assert kinds()
    assert len({kind.kind for kind in kinds()}) == len(kinds())
    assert all(kind.__doc__ for kind in kinds())


def inputs(layer: Layer, n: int) -> Tensor:
    return torch.randn(n, layer.in_width, generator=torch.Generator().manual_seed(n))


def outputs(layer: Layer, x: Tensor) -> list[Tensor]:
    """Message, root and update of every row; each row's aggregate is the message of the row itself."""
    with torch.inference_mode():
        message, root = layer.message(x), layer.root(x)
        return [message, root, layer.update(root, message)]


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
def test_an_affine_update_is_what_it_says(layer: Layer) -> None:
    root, aggregate = torch.randn(2, 9, layer.message_width).unbind()
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
def test_what_travels_is_no_wider_than_it_has_to_be(layer: Layer) -> None:
    if aggregator(layer.aggregator).invertible:
        assert layer.message_width <= min(layer.in_width, layer.out_width)


@every
def test_rows_are_independent(layer: Layer) -> None:
    x = inputs(layer, 9)
    order = torch.tensor([4, 0, 8, 4])
    for whole, some in zip(outputs(layer, x), outputs(layer, x[order]), strict=True):
        torch.testing.assert_close(some, whole[order])


@every
def test_a_layer_that_sends_its_value_says_so(layer: Layer) -> None:
    x = inputs(layer, 5)
    message, root, _ = outputs(layer, x)
    if layer.sends_value:
        assert torch.equal(message, x)
        assert torch.equal(root, x)


@every
def test_it_is_made_again_from_its_configuration(layer: Layer) -> None:
    plain = json.loads(json.dumps({"kind": layer.kind, **layer.config()}))
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
def test_preparing_changes_nothing_until_the_weights_do(layer: Layer) -> None:
    x = inputs(layer, 6)
    before = outputs(layer, x)
    mine = copy.deepcopy(layer).eval()
    mine.prepare()
    for expected, got in zip(before, outputs(mine, x), strict=True):
        torch.testing.assert_close(got, expected)
    mine.train()
    with torch.no_grad():
        for weight in mine.parameters():
            weight.add_(0.25)
    mine.eval().prepare()
    assert not torch.allclose(outputs(mine, x)[2], before[2])


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.kind)
@pytest.mark.parametrize("pulls", [True, False])
def test_streaming_equals_the_static_forward_pass(
    kind: type[Layer], pulls: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edge_operator, "prefers_pull", lambda *_: pulls)
    torch.manual_seed(2)
    schema = GraphSchema(features={"x": 3})
    witness = Witness(LocalEngine(GNN([kind(3, 5), kind(5, 2)]), 3, schema=schema))
    for batch in random_batches(schema, seed=4, n_batches=10, batch_size=60, n_vertices=30):
        witness.apply(batch)
    assert np.isfinite(witness.engine.embeddings()).all()
