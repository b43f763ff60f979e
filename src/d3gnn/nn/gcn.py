"""GCN (Kipf, Welling: Semi-Supervised Classification with Graph Convolutional Networks, 2017)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from d3gnn.nn.layer import DEGREE_WIDTH, Layer, activate, check_activation, check_widths


class GCN(Layer):
    r"""A convolution normalised by degrees, with the equation and parameters of torch_geometric's `GCNConv`.

    .. math:: x_v' = \sigma(b + W \sum_{u \in N_{in}(v) \cup \{v\}} \frac{e_{uv}}{\sqrt{d_u d_v}} x_u),
        \quad d_v = \sum_{u \in N_{in}(v) \cup \{v\}} e_{uv}

    `weighted` takes e from the one feature of edges, 1 for an edge that has none. With `loops`, every vertex
    has one edge to itself: the heaviest that it has, or one of weight 1 (2 if `improved` and `weighted`).
    Without
    `normalize`, d is 1 everywhere.
    """

    def __init__(
        self,
        in_width: int,
        out_width: int,
        activation: str | None = None,
        *,
        weighted: bool = False,
        normalize: bool = True,
        loops: bool = True,
        improved: bool = False,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.in_width, self.out_width = check_widths(in_width, out_width)
        self.activation = check_activation(activation)
        if loops and not normalize:
            raise ValueError("loops=True, normalize=False: loops are added only where degrees are reckoned")
        self.weighted, self.normalize, self.loops, self.improved = weighted, normalize, loops, improved
        self.aggregator = "sum"
        self.edge_in = self.edge_width = int(weighted)
        self.edge_default = 1.0
        self.skips_loops, self.uses_degree = loops, normalize
        self.narrows = out_width < in_width
        self.message_width = min(in_width, out_width)
        self.root_width = self.message_width + DEGREE_WIDTH if normalize else 1
        self.lin = nn.Linear(in_width, out_width, bias=False)
        self.bias = nn.Parameter(torch.zeros(out_width)) if bias else None

    def message(self, x: Tensor) -> Tensor:
        if not self.normalize:
            return self._narrow(x)
        return self._narrow(x[:, :-DEGREE_WIDTH]) * self._factor(x[:, -DEGREE_WIDTH:])

    def root(self, x: Tensor) -> Tensor:
        if not self.normalize:
            return x.new_zeros((len(x), 1))
        return torch.cat([self._narrow(x[:, :-DEGREE_WIDTH]), x[:, -DEGREE_WIDTH:]], 1)

    def update(self, root: Tensor, aggregate: Tensor) -> Tensor:
        out = aggregate
        if self.normalize:
            degree = root[:, -DEGREE_WIDTH:]
            factor = self._factor(degree)
            out = out * factor
            if self.loops:
                out = out + self._loop(degree) * factor * factor * root[:, :-DEGREE_WIDTH]
        out = out if self.narrows else self.lin(out)
        return activate(self.activation, out if self.bias is None else out + self.bias)

    def config(self) -> dict[str, Any]:
        return {
            "in_width": self.in_width,
            "out_width": self.out_width,
            "activation": self.activation,
            "weighted": self.weighted,
            "normalize": self.normalize,
            "loops": self.loops,
            "improved": self.improved,
            "bias": self.bias is not None,
        }

    def _narrow(self, x: Tensor) -> Tensor:
        return x @ self.lin.weight.T if self.narrows else x

    def _loop(self, degree: Tensor) -> Tensor:
        """The weight of each vertex's one loop."""
        heaviest, loops = degree[:, 2:3], degree[:, 3:4]
        if not self.weighted:
            return torch.ones_like(loops)
        return torch.where(loops > 0, heaviest, 2.0 if self.improved else 1.0)

    def _factor(self, degree: Tensor) -> Tensor:
        """One over the root of each vertex's degree."""
        whole = degree[:, 0:1] + (self._loop(degree) if self.loops else degree[:, 1:2])
        factor = whole.pow(-0.5)
        return factor.masked_fill_(factor == float("inf"), 0.0)
