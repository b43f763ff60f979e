"""Models are chains of layers whose widths match, saved without pickle."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from d3gnn import LocalEngine
from d3gnn.events import edge
from d3gnn.nn import GNN, GraphSAGE, SAGEConv
from d3gnn.nn.layer import make_layer


def test_widths_are_those_of_the_ends() -> None:
    model = GraphSAGE(7, 3, 2, 5)
    assert (model.in_channels, model.out_channels, len(model.layers)) == (7, 5, 2)
    assert repr(model) == "GNN(7 -> SAGEConv(mean) 3 -> SAGEConv(mean) 5)"


def test_layers_of_different_widths_are_refused() -> None:
    with pytest.raises(ValueError, match=r"layer 2 returns rows of 4 numbers, but layer 3 takes 5"):
        GNN([SAGEConv(2, 3), SAGEConv(3, 4), SAGEConv(5, 6)])
    with pytest.raises(ValueError, match=r"a model needs at least one layer"):
        GNN([])


@pytest.mark.parametrize("aggregator", ["sum", "mean"])
def test_a_saved_model_gives_the_same_embeddings(aggregator: str, tmp_path: Path) -> None:
    model = GraphSAGE(3, 6, 2, 2, aggr=aggregator, act="elu", seed=1)
    model.save(tmp_path / "model.safetensors")
    torch.manual_seed(99)
    loaded = GNN.load(tmp_path / "model.safetensors")
    assert loaded.config() == model.config()
    results = []
    for each in (model, loaded):
        engine = LocalEngine(each)
        engine.apply([edge(1, 2), edge(2, 3), edge(3, 1)])
        results.append(engine.embeddings([1, 2, 3]))
    assert (results[0] == results[1]).all()


def test_weights_that_are_views_can_be_saved(tmp_path: Path) -> None:
    model = GraphSAGE(3, 2, 1, seed=1)
    layer = model.layers[0]
    assert isinstance(layer, SAGEConv)
    layer.lin_r.weight = torch.nn.Parameter(torch.rand(3, 2).T)
    model.save(tmp_path / "m")
    loaded = GNN.load(tmp_path / "m").layers[0]
    assert isinstance(loaded, SAGEConv)
    assert torch.equal(loaded.lin_r.weight, layer.lin_r.weight)


def test_the_file_holds_weights_and_json_alone(tmp_path: Path) -> None:
    GraphSAGE(3, 2, 1).save(tmp_path / "m")
    with safe_open(str(tmp_path / "m"), "pt") as file:
        assert json.loads(file.metadata()["config"])["layers"][0]["type"] == "SAGEConv"
        assert set(file.keys()) == set(GraphSAGE(3, 2, 1).state_dict())


def test_files_that_are_no_models_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no model at .*nowhere: save one there"):
        GNN.load(tmp_path / "nowhere")
    (tmp_path / "text").write_text("hello, this is no model at all")
    with pytest.raises(ValueError, match=r"text is not a safetensors file"):
        GNN.load(tmp_path / "text")
    save_file({"w": torch.zeros(1)}, str(tmp_path / "foreign"))
    with pytest.raises(ValueError, match=r"foreign is a safetensors file, but not a model that d3gnn saved"):
        GNN.load(tmp_path / "foreign")
    save_file({"w": torch.zeros(1)}, str(tmp_path / "old"), metadata={"format": "d3gnn-model-1"})
    with pytest.raises(ValueError, match=r"old has the format d3gnn-model-1, but .* save the model again"):
        GNN.load(tmp_path / "old")


@pytest.mark.parametrize("config", [{}, {"type": "Nope"}, {"type": None}])
def test_unknown_layers_are_refused(config: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"unknown layer .*; known are .*SAGE"):
        make_layer(config)
