"""A model: a chain of layers, saved without pickle."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from d3gnn.nn.degrees import Degree, WithDegree
from d3gnn.nn.heads import Head, PairHead, make_head
from d3gnn.nn.layer import Layer, layer_config, make_layer

_FORMAT = "d3gnn-model-2"


class GNN(nn.Module):
    """A chain of layers, where the output of one is the input of the next.

    layers:
        The layers, in order. `out_width` of each must be `in_width` of the next.
    head:
        Makes a prediction for each vertex (`Head`), or a score for pairs of vertices (`PairHead`), from the
        embeddings that the last layer returns.

    >>> from d3gnn.nn import SAGEConv
    >>> GNN([SAGEConv(8, 16, act="relu"), SAGEConv(16, 4)])
    GNN(8 -> SAGEConv(mean) 16 -> SAGEConv(mean) 4)
    """

    def __init__(self, layers: Iterable[Layer], head: Head | PairHead | None = None) -> None:
        super().__init__()
        self._layers = nn.ModuleList(layers)
        self.head = head
        given = [cast(Layer, layer) for layer in self._layers]
        for i, layer in enumerate(given, start=1):
            if not isinstance(layer, Layer):
                raise TypeError(
                    f"layer {i} is a {_qualified(layer)}: use a layer of d3gnn.nn, or convert PyG's with "
                    "d3gnn.nn.from_pyg"
                )
        if not given:
            raise ValueError("layers=[]: a model needs at least one layer")
        for i, (a, b) in enumerate(pairwise(given), start=1):
            if a.out_width != b.in_width:
                raise ValueError(
                    f"layer {i} returns rows of {a.out_width} numbers, but layer {i + 1} takes {b.in_width}"
                )
        edge_dims = {layer.edge_dim for layer in given if layer.edge_dim}
        if len(edge_dims) > 1:
            raise ValueError(f"layers have different edge_dim, {sorted(edge_dims)}: it must be the same")
        #: Numbers that each edge must have as features; 0 if no layer reads them.
        self.edge_dim: int = max(edge_dims, default=0)
        #: Numbers per vertex in the input, and in an embedding.
        self.in_channels, self.out_channels = given[0].in_width, given[-1].out_width
        need_degree = [i for i, layer in enumerate(given) if layer.needs_degree]
        weighted = {given[i].edge_width > 0 for i in need_degree}
        if len(weighted) > 1:
            raise ValueError("layers that normalise by degrees must all use edge weights, or none of them")
        #: What counts degrees, if a layer needs them.
        self.degrees = Degree(weighted.pop()) if weighted else None
        last = need_degree[-1] if need_degree else -1
        # Not registered as modules: their weights are those of the given layers.
        self._chain = [WithDegree(layer, i < last) if i <= last else layer for i, layer in enumerate(given)]

    @property
    def layers(self) -> list[Layer]:
        """The layers as the operators run them: up to the last that needs degrees, rows contain degrees."""
        return self._chain

    @property
    def reads_destinations(self) -> bool:
        """Whether a layer's messages, or the scores of edges, depend on the edge's destination."""
        return self.scores_edges or any(layer.reads_destination for layer in self._chain)

    @property
    def scores_edges(self) -> bool:
        """Whether the head scores each edge whenever the embedding of one of its ends changes."""
        return isinstance(self.head, PairHead) and self.head.edges

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        """A static pass over a whole graph, as with a model of PyG: the embedding of every vertex.

        x:
            The input of each vertex [n, in_channels].
        edge_index:
            Sources in the first row, destinations in the second [2, edges].
        edge_attr:
            Features of each edge [edges, edge_dim], NaN where it lacks a number. Without it, edges have none.
            Models with `edge_dim` 0 ignore it.

        Returns a tensor [n, out_channels]. Autograd works through it, so that a model can be trained with it.

        >>> import torch
        >>> from d3gnn.nn import GraphSAGE
        >>> model = GraphSAGE(4, 8, num_layers=2, out_channels=2)
        >>> model(torch.randn(3, 4), torch.tensor([[0, 1], [1, 2]])).shape
        torch.Size([3, 2])
        """
        for layer in self._layers:
            x = layer(x, edge_index, edge_attr)
        return x

    def prepared(self) -> GNN:
        """A copy for inference: in eval mode, without gradients, with weights laid out for speed.

        The model itself stays as it is; later changes of its weights do not reach the copy.
        """
        made = copy.deepcopy(self).eval().requires_grad_(False)
        for layer in made.layers:
            layer.prepare()
        return made

    def config(self) -> dict[str, Any]:
        """How to build the model, without its weights, as plain values."""
        layers = [layer_config(cast(Layer, layer)) for layer in self._layers]
        return {"layers": layers} | ({} if self.head is None else {"head": self.head.config()})

    @property
    def digest(self) -> str:
        """A hash of the layers and their weights."""
        hasher = hashlib.sha256(json.dumps(self.config(), sort_keys=True).encode())
        for name, tensor in sorted(self.state_dict().items()):
            hasher.update(name.encode() + tensor.detach().contiguous().numpy().tobytes())
        return hasher.hexdigest()[:16]

    def save(self, path: str | Path) -> None:
        """Write the model as one safetensors file: the weights, with its configuration as JSON metadata."""
        # Copies: safetensors refuses two names of one weight.
        weights = {name: tensor.contiguous().clone() for name, tensor in self.state_dict().items()}
        save_file(weights, str(path), metadata={"format": _FORMAT, "config": json.dumps(self.config())})

    @staticmethod
    def load(path: str | Path) -> GNN:
        """Read a model that `save` wrote."""
        if not Path(path).is_file():
            raise FileNotFoundError(f"no model at {path}: save one there with model.save(path)")
        try:
            with safe_open(str(path), "pt") as file:
                metadata = file.metadata() or {}
        except Exception as error:
            raise ValueError(f"{path} is not a safetensors file: {error}") from error
        found = metadata.get("format", "")
        if not found.startswith("d3gnn-model-"):
            raise ValueError(f"{path} is a safetensors file, but not a model that d3gnn saved")
        if found != _FORMAT:
            raise ValueError(
                f"{path} has the format {found}, but this version reads {_FORMAT}: save the model again with "
                "this version"
            )
        config = json.loads(metadata["config"])
        head = make_head(config["head"]) if "head" in config else None
        model = GNN((make_layer(layer) for layer in config["layers"]), head)
        model.load_state_dict(load_file(str(path)))
        return model

    @staticmethod
    def check(model: object) -> GNN:
        """The model, if it is a GNN; raises a TypeError that says what to do if it is not."""
        if not isinstance(model, GNN):
            raise TypeError(
                f"the model is a {_qualified(model)}, not a d3gnn.nn.GNN: convert a model of PyG with "
                "d3gnn.nn.from_pyg(model)"
            )
        return model

    def __repr__(self) -> str:
        given = (cast(Layer, layer) for layer in self._layers)
        layers = "".join(f" -> {layer.type_name}({layer.aggr}) {layer.out_width}" for layer in given)
        head = "" if self.head is None else f" -> {self.head.type_name}"
        return f"GNN({self.in_channels}{layers}{head})"


def _qualified(thing: object) -> str:
    return f"{type(thing).__module__}.{type(thing).__qualname__}"
