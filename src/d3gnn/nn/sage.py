"""GraphSAGE (Hamilton, Ying, Leskovec: Inductive Representation Learning on Large Graphs, 2017)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from d3gnn.nn.activation import activate
from d3gnn.nn.aggregation import is_linear
from d3gnn.nn.conv import Conv, no_root
from d3gnn.nn.layer import Affine


class SAGEConv(Conv):
    r"""The GraphSAGE layer, with the equation and parameters of PyG's `SAGEConv`.

    .. math:: x_v' = \sigma(W_l\, \text{aggr}_{u \in N_{in}(v)} x_u + b + W_r x_v)

    aggr:
        `mean`, `sum` (or `add`), `max`, `min`; several as a list or joined by commas.
    normalize:
        Scale each output row to length 1.
    root_weight:
        Whether the vertex itself takes part; if not, there is no W_r.
    project:
        Send relu(W x_u + c) instead of x_u.
    act:
        Activation of the output: `relu`, `tanh`, `elu` or None.

    Linear aggregations allow W_l and W_r to be applied before values are sent: a message is as wide as the
    narrower of input and output.

    >>> SAGEConv(100, 16).message_width, SAGEConv(16, 100).message_width
    (16, 16)
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        aggr: str | Sequence[str] = "mean",
        normalize: bool = False,
        root_weight: bool = True,
        project: bool = False,
        bias: bool = True,
        *,
        act: str | None = None,
    ) -> None:
        super().__init__(in_channels, out_channels, aggr, several=True, bias=bias, act=act)
        self.normalize, self.root_weight, self.project = normalize, root_weight, project
        self.transforms_first = out_channels < in_channels and is_linear(self.aggr)
        self.lin = nn.Linear(in_channels, in_channels) if project else None
        self.lin_l = nn.Linear(len(self.aggr.split(",")) * in_channels, out_channels, bias=bias)
        self.lin_r: nn.Linear
        if root_weight:
            self.lin_r = nn.Linear(in_channels, out_channels, bias=False)
        self.sends_input = not (self.transforms_first or project) and root_weight
        self.message_width = out_channels if self.transforms_first else in_channels
        self.root_width = self.message_width if root_weight else 1
        self._prepared: tuple[Tensor, Tensor | None, Tensor] | None = None

    def prepare(self) -> None:
        self._unprepare()
        with torch.no_grad():
            left, right, bias = self._weights()
            self._prepared = left.clone(), None if right is None else right.clone(), bias.clone()
            simple = self.sends_input and is_linear(self.aggr) and not self.normalize
            if simple and right is not None and self.act in ("relu", None):
                arrays = [np.ascontiguousarray(weight.detach().numpy()) for weight in (left, right, bias)]
                self.affine = Affine(arrays[0], arrays[1], arrays[2], self.act == "relu")

    def train(self, mode: bool = True) -> SAGEConv:
        self._unprepare()  # the weights are about to change
        return super().train(mode)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self._unprepare()  # the weights change
        super()._load_from_state_dict(*args, **kwargs)

    def _unprepare(self) -> None:
        self._prepared = self.affine = None

    def _weights(self) -> tuple[Tensor, Tensor | None, Tensor]:
        """W_l and W_r, transposed, and b. Reading them from modules takes longer than a small product."""
        if self._prepared is not None:
            return self._prepared
        bias: Tensor | None = self.lin_l.bias
        return (
            self.lin_l.weight.T,
            self.lin_r.weight.T if self.root_weight else None,
            self.lin_l.weight.new_zeros(self.out_channels) if bias is None else bias,
        )

    def message(self, x: Tensor) -> Tensor:
        if self.lin is not None:
            x = torch.relu_(self.lin(x))
        return x @ self._weights()[0] if self.transforms_first else x

    def root(self, x: Tensor) -> Tensor:
        right = self._weights()[1]
        if right is None:
            return no_root(x)
        return x @ right if self.transforms_first else x

    def update(self, root: Tensor, aggregate: Tensor) -> Tensor:
        left, right, bias = self._weights()
        if self.transforms_first:
            out = aggregate + bias if right is None else aggregate + root + bias
        else:
            out = torch.addmm(bias, aggregate, left)
            if right is not None:
                out.addmm_(root, right)
        if self.normalize:
            out = nn.functional.normalize(out, p=2.0, dim=-1)
        return activate(self.act, out)
