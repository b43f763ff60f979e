"""Degrees for layers that normalise by them: what counts them, and how they reach those layers.

See docs/adr/0008-degrees-are-columns-of-values.md.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from d3gnn.nn.layer import DEGREE_WIDTH, AttentionSpec, Layer
from d3gnn.nn.stage import copy_contract


class Degree(Layer):
    """Counts degrees: its messages are the edges themselves, so sources send nothing."""

    aggr = "degrees"
    in_width = out_width = root_width = 0
    message_width = 1

    def __init__(self, edge_weight: bool) -> None:
        super().__init__()
        self.edge_dim = self.edge_width = int(edge_weight)
        self.edge_default = 1.0


class WithDegree(Layer):
    """A layer whose input rows end with the vertex's degree; with `passes_on`, so do its output rows."""

    def __init__(self, layer: Layer, passes_on: bool) -> None:
        super().__init__()
        self._layer, self.passes_on = [layer], passes_on  # in a list: the weights belong to the model
        more = DEGREE_WIDTH if passes_on else 0
        self.in_width, self.out_width = layer.in_width + DEGREE_WIDTH, layer.out_width + more
        self.root_width = layer.root_width + more
        copy_contract(layer, self)

    @property
    def layer(self) -> Layer:
        return self._layer[0]

    @property
    def attention(self) -> AttentionSpec | None:  # type: ignore[override]
        return self.layer.attention

    def prepare(self) -> None:
        self.layer.prepare()

    def message(self, x: Tensor) -> Tensor:
        return self.layer.message(self._input(x))

    def root(self, x: Tensor) -> Tensor:
        root = self.layer.root(self._input(x))
        return torch.cat([root, x[:, -DEGREE_WIDTH:]], 1) if self.passes_on else root

    def edge(self, features: Tensor) -> Tensor:
        return self.layer.edge(features)

    def edge_message(self, source: Tensor, destination: Tensor, edge: Tensor) -> Tensor:
        return self.layer.edge_message(source, destination, edge)

    @property
    def makes_edge_messages(self) -> bool:
        return self.layer.makes_edge_messages

    def update(self, root: Tensor, aggregate: Tensor) -> Tensor:
        out = self.layer.update(root[:, : self.layer.root_width], aggregate)
        return torch.cat([out, root[:, -DEGREE_WIDTH:]], 1) if self.passes_on else out

    def config(self) -> dict[str, Any]:
        return self.layer.config()

    def _input(self, x: Tensor) -> Tensor:
        return x if self.needs_degree else x[:, :-DEGREE_WIDTH]
