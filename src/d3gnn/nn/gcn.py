"""GCN (Kipf, Welling: Semi-Supervised Classification with Graph Convolutional Networks, 2017)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from d3gnn.nn.activation import activate
from d3gnn.nn.conv import Conv, apply_if, no_root
from d3gnn.nn.layer import DEGREE_WIDTH


class GCNConv(Conv):
    r"""A convolution normalised by degrees, with the equation and parameters of PyG's `GCNConv`.

    .. math:: x_v' = \sigma(b + W \sum_{u \in N_{in}(v) \cup \{v\}} \frac{e_{uv}}{\sqrt{d_u d_v}} x_u),
        \quad d_v = \sum_{u \in N_{in}(v) \cup \{v\}} e_{uv}

    improved:
        With `edge_weight`, added self-loops have weight 2 instead of 1.
    add_self_loops:
        Every vertex has exactly one self-loop: its heaviest, or one that is added. Default: as `normalize`.
    normalize:
        Whether to divide by degrees; if not, d is 1 everywhere, and no self-loops can be added.
    edge_weight:
        Take e from the one feature of edges; 1 for an edge without it, and everywhere if False.
    act:
        Activation of the output: `relu`, `tanh`, `elu` or None.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        improved: bool = False,
        *,
        add_self_loops: bool | None = None,
        normalize: bool = True,
        bias: bool = True,
        edge_weight: bool = False,
        act: str | None = None,
    ) -> None:
        super().__init__(in_channels, out_channels, "sum", edge_weight=edge_weight, bias=bias, act=act)
        self.add_self_loops = normalize if add_self_loops is None else add_self_loops
        if self.add_self_loops and not normalize:
            raise ValueError("add_self_loops=True needs normalize=True: self-loops are added to degrees")
        self.normalize, self.improved = normalize, improved
        self.skips_self_loops, self.needs_degree = self.add_self_loops, normalize
        self.transforms_first = out_channels < in_channels
        self.message_width = min(in_channels, out_channels)
        self.root_width = self.message_width + DEGREE_WIDTH if normalize else 1
        self.lin = nn.Linear(in_channels, out_channels, bias=False)
        self.bias = nn.Parameter(torch.zeros(out_channels)) if bias else None

    def message(self, x: Tensor) -> Tensor:
        if not self.normalize:
            return apply_if(self.transforms_first, self.lin, x)
        x, degree = x[:, :-DEGREE_WIDTH], x[:, -DEGREE_WIDTH:]
        return apply_if(self.transforms_first, self.lin, x) * self._factor(degree)

    def root(self, x: Tensor) -> Tensor:
        if not self.normalize:
            return no_root(x)
        x, degree = x[:, :-DEGREE_WIDTH], x[:, -DEGREE_WIDTH:]
        return torch.cat([apply_if(self.transforms_first, self.lin, x), degree], 1)

    def update(self, root: Tensor, aggregate: Tensor) -> Tensor:
        out = aggregate
        if self.normalize:
            degree = root[:, -DEGREE_WIDTH:]
            factor = self._factor(degree)
            out = out * factor
            if self.add_self_loops:
                out = out + self._loop_weight(degree) * factor * factor * root[:, :-DEGREE_WIDTH]
        out = out if self.transforms_first else self.lin(out)
        return activate(self.act, out if self.bias is None else out + self.bias)

    def _loop_weight(self, degree: Tensor) -> Tensor:
        """The weight of each vertex's one self-loop."""
        heaviest, loops = degree[:, 2:3], degree[:, 3:4]
        if not self.edge_weight:
            return torch.ones_like(loops)
        return torch.where(loops > 0, heaviest, 2.0 if self.improved else 1.0)

    def _factor(self, degree: Tensor) -> Tensor:
        """One over the square root of each vertex's degree; 0 where the degree is 0."""
        loops = self._loop_weight(degree) if self.add_self_loops else degree[:, 1:2]
        factor = (degree[:, 0:1] + loops).pow(-0.5)
        return factor.masked_fill(factor == float("inf"), 0.0)
