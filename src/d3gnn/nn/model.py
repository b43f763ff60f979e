"""A model is a chain of layers; it is saved without pickle."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from d3gnn.nn.layer import Layer, make_layer

_FORMAT = "d3gnn-model-1"


class GNN(nn.Module):
    """A chain of layers: the output of one is the input of the next.

    >>> from d3gnn.nn import SAGE
    >>> GNN([SAGE(8, 16, activation="relu"), SAGE(16, 4)])
    GNN(8 -> SAGE(mean) 16 -> SAGE(mean) 4)
    """

    def __init__(self, layers: Iterable[Layer]) -> None:
        super().__init__()
        self._layers = nn.ModuleList(layers)
        if not len(self._layers):
            raise ValueError("a model needs at least one layer")
        for i, (a, b) in enumerate(zip(self.layers, self.layers[1:], strict=False), start=1):
            if a.out_width != b.in_width:
                raise ValueError(
                    f"layer {i} gives {a.out_width} values, but layer {i + 1} takes {b.in_width}"
                )

    @property
    def layers(self) -> list[Layer]:
        return [cast(Layer, layer) for layer in self._layers]

    @property
    def in_width(self) -> int:
        return self.layers[0].in_width

    @property
    def out_width(self) -> int:
        return self.layers[-1].out_width

    def config(self) -> dict[str, Any]:
        """What makes the same model again, weights aside."""
        return {"layers": [{"kind": layer.kind, **layer.config()} for layer in self.layers]}

    @property
    def digest(self) -> str:
        """Tells models apart: a hash of the layers and their weights."""
        hasher = hashlib.sha256(json.dumps(self.config(), sort_keys=True).encode())
        for name, tensor in sorted(self.state_dict().items()):
            hasher.update(name.encode() + tensor.detach().contiguous().numpy().tobytes())
        return hasher.hexdigest()[:16]

    def save(self, path: str | Path) -> None:
        """Write the model as one safetensors file: weights, and how to build it as JSON in its metadata."""
        weights = {name: tensor.contiguous() for name, tensor in self.state_dict().items()}
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
        model = GNN(make_layer(layer) for layer in config["layers"])
        model.load_state_dict(load_file(str(path)))
        return model

    def __repr__(self) -> str:
        layers = "".join(f" -> {layer.kind}({layer.aggregator}) {layer.out_width}" for layer in self.layers)
        return f"GNN({self.in_width}{layers})"
