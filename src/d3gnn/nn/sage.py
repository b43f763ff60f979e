"""GraphSAGE (Hamilton, Ying, Leskovec: Inductive Representation Learning on Large Graphs, 2017)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from d3gnn.nn.layer import Affine, Layer, activate, check_activation
from d3gnn.nn.model import GNN

AGGREGATORS = ("sum", "mean")


class SAGE(Layer):
    r"""One GraphSAGE layer, with the equation and parameters of torch_geometric's `SAGEConv`.

    .. math:: x_v' = \sigma(W_l\, \rho_{u \in N_{in}(v)} x_u + b + W_r x_v)

    Sum and mean are linear: where the output is narrower than the input, W_l and W_r are applied before the
    values travel instead of after.

    >>> SAGE(100, 16).message_width, SAGE(16, 100).message_width
    (16, 16)
    """

    def __init__(
        self, in_width: int, out_width: int, aggregator: str = "mean", activation: str | None = None
    ) -> None:
        super().__init__()
        if aggregator not in AGGREGATORS:
            raise ValueError(f"aggregator={aggregator!r}: choose one of {', '.join(AGGREGATORS)}")
        if in_width < 1 or out_width < 1:
            raise ValueError(f"widths {in_width} -> {out_width}: at least 1 each, please")
        self.in_width, self.out_width, self.aggregator = in_width, out_width, aggregator
        self.activation = check_activation(activation)
        self.lin_l = nn.Linear(in_width, out_width)
        self.lin_r = nn.Linear(in_width, out_width, bias=False)
        self.narrows = out_width < in_width
        self.sends_value = not self.narrows
        self.message_width = self.root_width = min(in_width, out_width)
        self._prepared: tuple[Tensor, Tensor, Tensor] | None = None

    def prepare(self) -> None:
        self._forget()
        with torch.inference_mode():
            self._prepared = tuple(weight.clone() for weight in self._weights())  # type: ignore[assignment]
            if not self.narrows and self.activation in ("relu", None):
                left, right, bias = (np.ascontiguousarray(weight.numpy()) for weight in self._weights())
                self.affine = Affine(left, right, bias, self.activation == "relu")

    def train(self, mode: bool = True) -> SAGE:
        self._forget()  # the weights are about to change
        return super().train(mode)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self._forget()  # there are other weights now
        super()._load_from_state_dict(*args, **kwargs)

    def _forget(self) -> None:
        self._prepared = self.affine = None

    def _weights(self) -> tuple[Tensor, Tensor, Tensor]:
        """W_l and W_r, transposed, and b. Looking them up in modules takes longer than a small product."""
        return self._prepared or (self.lin_l.weight.T, self.lin_r.weight.T, self.lin_l.bias)

    def message(self, x: Tensor) -> Tensor:
        return x @ self._weights()[0] if self.narrows else x

    def root(self, x: Tensor) -> Tensor:
        return x @ self._weights()[1] if self.narrows else x

    def update(self, root: Tensor, aggregate: Tensor) -> Tensor:
        left, right, bias = self._weights()
        if self.narrows:
            out = aggregate + root + bias
        else:
            out = torch.addmm(bias, aggregate, left).addmm_(root, right)
        return activate(self.activation, out)

    def config(self) -> dict[str, Any]:
        return {
            "in_width": self.in_width,
            "out_width": self.out_width,
            "aggregator": self.aggregator,
            "activation": self.activation,
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
