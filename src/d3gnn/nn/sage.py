"""GraphSAGE (Hamilton, Ying, Leskovec: Inductive Representation Learning on Large Graphs, 2017)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from d3gnn.nn.layer import (
    Affine,
    Layer,
    activate,
    check_activation,
    check_aggregator,
    check_widths,
    is_linear,
)
from d3gnn.nn.model import GNN


class SAGE(Layer):
    r"""One GraphSAGE layer, with the equation and parameters of torch_geometric's `SAGEConv`.

    .. math:: x_v' = \sigma(W_l\, \rho_{u \in N_{in}(v)} x_u + b + W_r x_v)

    Sum and mean are linear: where the output is narrower than the input, W_l and W_r are applied before the
    values travel instead of after. With `project`, messages are relu(W x_u + c); with `normalize`, the output
    has length 1; without `root_weight`, there is no W_r.

    >>> SAGE(100, 16).message_width, SAGE(16, 100).message_width, SAGE(100, 16, "max").message_width
    (16, 16, 100)
    """

    def __init__(
        self,
        in_width: int,
        out_width: int,
        aggregator: str = "mean",
        activation: str | None = None,
        *,
        normalize: bool = False,
        root_weight: bool = True,
        project: bool = False,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.aggregator = check_aggregator(aggregator)
        self.in_width, self.out_width = check_widths(in_width, out_width)
        self.activation = check_activation(activation)
        self.normalize, self.root_weight, self.project = normalize, root_weight, project
        several = len(aggregator.split(","))
        self.narrows = out_width < in_width and is_linear(aggregator)
        self.lin = nn.Linear(in_width, in_width) if project else None
        self.lin_l = nn.Linear(several * in_width, out_width, bias=bias)
        self.lin_r: nn.Linear
        if root_weight:
            self.lin_r = nn.Linear(in_width, out_width, bias=False)
        self.sends_value = not (self.narrows or project) and root_weight
        self.message_width = out_width if self.narrows else in_width
        self.root_width = self.message_width if root_weight else 1
        self._prepared: tuple[Tensor, Tensor | None, Tensor] | None = None

    def prepare(self) -> None:
        self._forget()
        with torch.inference_mode():
            left, right, bias = self._weights()
            self._prepared = left.clone(), None if right is None else right.clone(), bias.clone()
            simple = self.sends_value and is_linear(self.aggregator) and not self.normalize
            if simple and right is not None and self.activation in ("relu", None):
                arrays = [np.ascontiguousarray(weight.numpy()) for weight in (left, right, bias)]
                self.affine = Affine(arrays[0], arrays[1], arrays[2], self.activation == "relu")

    def train(self, mode: bool = True) -> SAGE:
        self._forget()  # the weights are about to change
        return super().train(mode)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self._forget()  # there are other weights now
        super()._load_from_state_dict(*args, **kwargs)

    def _forget(self) -> None:
        self._prepared = self.affine = None

    def _weights(self) -> tuple[Tensor, Tensor | None, Tensor]:
        """W_l and W_r, transposed, and b. Looking them up in modules takes longer than a small product."""
        if self._prepared is not None:
            return self._prepared
        bias: Tensor | None = self.lin_l.bias
        return (
            self.lin_l.weight.T,
            self.lin_r.weight.T if self.root_weight else None,
            torch.zeros(self.out_width) if bias is None else bias,
        )

    def message(self, x: Tensor) -> Tensor:
        if self.lin is not None:
            x = torch.relu_(self.lin(x))
        return x @ self._weights()[0] if self.narrows else x

    def root(self, x: Tensor) -> Tensor:
        right = self._weights()[1]
        if right is None:
            return x.new_zeros((len(x), 1))
        return x @ right if self.narrows else x

    def update(self, root: Tensor, aggregate: Tensor) -> Tensor:
        left, right, bias = self._weights()
        if self.narrows:
            out = aggregate + bias if right is None else aggregate + root + bias
        else:
            out = torch.addmm(bias, aggregate, left)
            if right is not None:
                out.addmm_(root, right)
        if self.normalize:
            out = nn.functional.normalize(out, p=2.0, dim=-1)
        return activate(self.activation, out)

    def config(self) -> dict[str, Any]:
        return {
            "in_width": self.in_width,
            "out_width": self.out_width,
            "aggregator": self.aggregator,
            "activation": self.activation,
            "normalize": self.normalize,
            "root_weight": self.root_weight,
            "project": self.project,
            "bias": self.lin_l.bias is not None,
        }


def GraphSAGE(  # noqa: N802  # reads as the model that it makes
    widths: Sequence[int],
    aggregator: str = "mean",
    activation: str | None = "relu",
    *,
    seed: int | None = None,
) -> GNN:
    """A GraphSAGE model: `widths` are those of the input and of each layer's output.

    The activation stands between layers, not after the last one. A seed makes the weights reproducible.

    >>> GraphSAGE([8, 64, 16], seed=1)
    GNN(8 -> SAGE(mean) 64 -> SAGE(mean) 16)
    """
    if len(widths) < 2:
        raise ValueError(f"widths={list(widths)}: the input's width and at least one layer's, please")
    with torch.random.fork_rng(devices=[], enabled=seed is not None):
        if seed is not None:
            torch.manual_seed(seed)
        last = len(widths) - 2
        return GNN(
            SAGE(w_in, w_out, aggregator, activation if i < last else None)
            for i, (w_in, w_out) in enumerate(pairwise(widths))
        )
