"""A model is a chain of layers; it is saved without pickle."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from d3gnn.nn.heads import Head, PairHead, make_head
from d3gnn.nn.layer import Layer, make_layer
from d3gnn.nn.stage import WithDegree

_FORMAT = "d3gnn-model-1"


class Degree(Layer):
    """What Edge 0 counts for a model whose layers want to know degrees; sources send nothing."""

    aggregator = "degrees"
    in_width = out_width = root_width = 0
    message_width = 1

    def __init__(self, weighted: bool) -> None:
        super().__init__()
        self.edge_in = self.edge_width = int(weighted)
        self.edge_default = 1.0


class GNN(nn.Module):
    """A chain of layers: the output of one is the input of the next. A head says something of the last, of
    each vertex or of pairs of them.

    >>> from d3gnn.nn import SAGE
    >>> GNN([SAGE(8, 16, activation="relu"), SAGE(16, 4)])
    GNN(8 -> SAGE(mean) 16 -> SAGE(mean) 4)
    """

    def __init__(self, layers: Iterable[Layer], head: Head | PairHead | None = None) -> None:
        super().__init__()
        self._layers = nn.ModuleList(layers)
        #: What is said of a vertex, beside its embedding, or of two.
        self.head = head
        given = [cast(Layer, layer) for layer in self._layers]
        if not given:
            raise ValueError("a model needs at least one layer")
        for i, (a, b) in enumerate(pairwise(given), start=1):
            if a.out_width != b.in_width:
                raise ValueError(
                    f"layer {i} gives {a.out_width} values, but layer {i + 1} takes {b.in_width}"
                )
        wanted = {layer.edge_in for layer in given if layer.edge_in}
        if len(wanted) > 1:
            raise ValueError(f"layers take edges with {' and with '.join(map(str, sorted(wanted)))} numbers")
        #: Numbers that the features of an edge must have; 0 if no layer reads them.
        self.edge_in: int = max(wanted, default=0)
        self.in_width, self.out_width = given[0].in_width, given[-1].out_width
        normalised = [i for i, layer in enumerate(given) if layer.uses_degree]
        weighted = {given[i].edge_width > 0 for i in normalised}
        if len(weighted) > 1:
            raise ValueError("of the layers that reckon with degrees, all have weights on edges or none has")
        #: What counts degrees, if any layer wants to know them.
        self.degrees = Degree(weighted.pop()) if weighted else None
        last = normalised[-1] if normalised else -1
        # Not among the modules: the weights are those of the layers that were given.
        self._chain = [WithDegree(layer, i < last) if i <= last else layer for i, layer in enumerate(given)]

    @property
    def layers(self) -> list[Layer]:
        """The layers as they run: up to the last one that wants to know degrees, with those in their rows."""
        return self._chain

    @property
    def reads_destinations(self) -> bool:
        """Whether messages of any layer depend on their destination, or scores of edges do."""
        return self.scores_edges or any(layer.reads_destination for layer in self._chain)

    @property
    def scores_edges(self) -> bool:
        """Whether the head scores edges as often as their ends change."""
        return isinstance(self.head, PairHead) and self.head.edges

    def config(self) -> dict[str, Any]:
        """What makes the same model again, weights aside."""
        given = (cast(Layer, layer) for layer in self._layers)
        layers = [{"kind": layer.kind, **layer.config()} for layer in given]
        return {"layers": layers} | ({} if self.head is None else {"head": self.head.config()})

    @property
    def digest(self) -> str:
        """Tells models apart: a hash of the layers and their weights."""
        hasher = hashlib.sha256(json.dumps(self.config(), sort_keys=True).encode())
        for name, tensor in sorted(self.state_dict().items()):
            hasher.update(name.encode() + tensor.detach().contiguous().numpy().tobytes())
        return hasher.hexdigest()[:16]

    def save(self, path: str | Path) -> None:
        """Write the model as one safetensors file: weights, and how to build it as JSON in its metadata."""
        # Copies: two names of one weight would be refused.
        weights = {name: tensor.contiguous().clone() for name, tensor in self.state_dict().items()}
        save_file(weights, str(path), metadata={"format": _FORMAT, "config": json.dumps(self.config())})

    @staticmethod
    def load(path: str | Path) -> GNN:
        """The model that `save` wrote."""
        if not Path(path).is_file():
            raise FileNotFoundError(f"no model at {path}: save one there with model.save(path)")
        try:
            with safe_open(str(path), "pt") as file:
                metadata = file.metadata() or {}
        except Exception as error:
            raise ValueError(f"{path} is not a safetensors file: {error}") from error
        if metadata.get("format") != _FORMAT:
            raise ValueError(f"{path} is a safetensors file, but not a model that d3gnn saved")
        config = json.loads(metadata["config"])
        head = make_head(config["head"]) if "head" in config else None
        model = GNN((make_layer(layer) for layer in config["layers"]), head)
        model.load_state_dict(load_file(str(path)))
        return model

    def __repr__(self) -> str:
        given = (cast(Layer, layer) for layer in self._layers)
        layers = "".join(f" -> {layer.kind}({layer.aggregator}) {layer.out_width}" for layer in given)
        said = "" if self.head is None else f" -> {self.head.kind}"
        return f"GNN({self.in_width}{layers}{said})"
