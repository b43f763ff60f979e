"""Graph attention (Veličković et al.: Graph Attention Networks, 2018; Brody, Alon, Yahav: How Attentive are
Graph Attention Networks?, 2022).
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from d3gnn.nn.activation import activate
from d3gnn.nn.arguments import refuse
from d3gnn.nn.conv import Conv, no_root
from d3gnn.nn.layer import AttentionSpec
from d3gnn.whole_numbers import check_whole


class _AttentionConv(Conv):
    """What the two kinds of attention have in common.

    With self-loops, a vertex attends to itself in `update`: its root holds its own message and its terms of
    the logit, `loop_width` numbers.
    """

    reads_destination = True

    def __init__(
        self, in_channels: int, out_channels: int, heads: int, concat: bool, negative_slope: float,
        add_self_loops: bool, edge_dim: int | None, fill_value: float | str, bias: bool, residual: bool,
        act: str | None,
    ) -> None:  # fmt: skip
        super().__init__(in_channels, out_channels, "sum", bias=bias, act=act)
        self.aggr = "attention"
        check_whole("heads", heads)
        if isinstance(fill_value, str) and fill_value != "mean":
            raise ValueError(f"fill_value={fill_value!r}: use 'mean' or a number")
        self.heads, self.concat, self.negative_slope = heads, concat, negative_slope
        self.add_self_loops = self.skips_self_loops = add_self_loops
        self.edge_dim, self.edge_default, self.fill_value = edge_dim or 0, 0.0, fill_value
        self.residual = residual
        width = heads * out_channels
        self.out_width = width if concat else out_channels
        self.res = nn.Linear(in_channels, self.out_width, bias=False) if residual else None
        self.lin_edge = nn.Linear(self.edge_dim, width, bias=False) if self.edge_dim else None
        self.bias = nn.Parameter(torch.zeros(self.out_width)) if bias else None

    def _set_widths(self, message: int, edge: int) -> None:
        self.message_width, self.edge_width = message, edge if self.edge_dim else 0
        loop = self.loop_width if self.add_self_loops else 0
        self.root_width = max(1, loop + (self.out_width if self.residual else 0))

    @abstractmethod
    def loop(self, x: Tensor) -> Tensor:
        """What a vertex needs to attend to itself, its message first: [n, loop_width]."""

    @abstractmethod
    def loop_logit(self, loop: Tensor, edge: Tensor | None) -> Tensor:
        """The logit of each vertex's self-loop: [n, heads]; `edge` is what the self-loop contributes."""

    @property
    @abstractmethod
    def loop_width(self) -> int: ...

    def by_head(self, x: Tensor) -> Tensor:
        """[n, heads * out_channels] -> [n, heads, out_channels]."""
        return x.reshape(-1, self.heads, self.out_channels)

    def root(self, x: Tensor) -> Tensor:
        parts = [self.loop(x)] if self.add_self_loops else []
        if self.res is not None:
            parts.append(self.res(x))
        return torch.cat(parts, 1) if parts else no_root(x)

    def update(self, root: Tensor, aggregate: Tensor) -> Tensor:
        heads, width = self.heads, self.heads * self.out_channels
        largest, total = aggregate[:, :heads], aggregate[:, heads : 2 * heads]
        weighted = self.by_head(aggregate[:, 2 * heads : 2 * heads + width])
        edges = aggregate[:, 2 * heads + width :]
        if self.add_self_loops:
            loop = root[:, : self.loop_width]
            logit = self.loop_logit(loop, self._loop_edge(edges))
            both = torch.maximum(largest, logit)
            scale, share = torch.exp(largest - both), torch.exp(logit - both)
            total = total * scale + share
            weighted = weighted * scale.unsqueeze(-1) + share.unsqueeze(-1) * self.by_head(loop[:, :width])
        out = weighted / (total + 1e-16).unsqueeze(-1)
        out = out.flatten(1) if self.concat else out.mean(1)
        if self.res is not None:
            out = out + root[:, -self.out_width :]
        return activate(self.act, out if self.bias is None else out + self.bias)

    def _loop_edge(self, mean: Tensor) -> Tensor | None:
        """What a self-loop contributes: the mean of what the in-edges do, or that of `fill_value`."""
        if not self.edge_dim:
            return None
        if isinstance(self.fill_value, str):
            return mean
        return self.edge(mean.new_full((1, self.edge_dim), self.fill_value)).expand(len(mean), -1)


class GATConv(_AttentionConv):
    r"""Graph attention, with the equations and parameters of PyG's `GATConv`.

    .. math:: x_v' = \sigma(b + \sum_{u} \alpha_{uv} W x_u), \quad
        \alpha_{uv} = \text{softmax}_u(\text{leakyrelu}(a_1 W x_u + a_2 W x_v + a_3 W_e e_{uv}))

    heads, concat:
        Number of heads, each with `out_channels` numbers; they are concatenated or averaged.
    negative_slope:
        Slope of the leaky relu.
    add_self_loops:
        Replace the self-loops of each vertex by a single one.
    edge_dim:
        Numbers that each edge has as features; None to leave them out. A number that an edge lacks is 0.
    fill_value:
        Features of added self-loops: the `mean` of the vertex's in-edges, or a number.
    residual:
        Add a linear transformation of the input.
    act:
        Activation of the output: `relu`, `tanh`, `elu` or None.
    """

    def __init__(
        self, in_channels: int, out_channels: int, heads: int = 1, concat: bool = True,
        negative_slope: float = 0.2, *, add_self_loops: bool = True, edge_dim: int | None = None,
        fill_value: float | str = "mean", bias: bool = True, residual: bool = False, act: str | None = None,
        **unsupported: Any,
    ) -> None:  # fmt: skip
        refuse("GATConv", unsupported)
        super().__init__(
            in_channels, out_channels, heads, concat, negative_slope, add_self_loops, edge_dim, fill_value,
            bias, residual, act,
        )  # fmt: skip
        self.lin = nn.Linear(in_channels, heads * out_channels, bias=False)
        self.att_src, self.att_dst = _scores(heads, out_channels), _scores(heads, out_channels)
        self.att_edge = _scores(heads, out_channels) if edge_dim else None
        self._set_widths(message=heads * (out_channels + 2), edge=heads)

    @property
    def attention(self) -> AttentionSpec:  # type: ignore[override]
        return AttentionSpec(self.heads, self.out_channels, self.negative_slope)

    @property
    def loop_width(self) -> int:
        return self.heads * (self.out_channels + 1)

    def message(self, x: Tensor) -> Tensor:
        message = self.lin(x)
        terms = [(self.by_head(message) * att).sum(-1) for att in (self.att_src, self.att_dst)]
        return torch.cat([message, *terms], 1)

    def loop(self, x: Tensor) -> Tensor:
        message = self.lin(x)
        return torch.cat([message, (self.by_head(message) * (self.att_src + self.att_dst)).sum(-1)], 1)

    def loop_logit(self, loop: Tensor, edge: Tensor | None) -> Tensor:
        terms = loop[:, self.heads * self.out_channels :]
        return nn.functional.leaky_relu(terms if edge is None else terms + edge, self.negative_slope)

    def edge(self, features: Tensor) -> Tensor:
        assert self.lin_edge is not None
        assert self.att_edge is not None
        return (self.by_head(self.lin_edge(features)) * self.att_edge).sum(-1)


class GATv2Conv(_AttentionConv):
    r"""Dynamic attention, with the equations and parameters of PyG's `GATv2Conv`.

    .. math:: x_v' = \sigma(b + \sum_{u} \alpha_{uv} W_l x_u), \quad
        \alpha_{uv} = \text{softmax}_u(a\, \text{leakyrelu}(W_l x_u + W_r x_v + W_e e_{uv}))

    share_weights:
        Use the same matrix for W_l and W_r.

    The other arguments are those of `GATConv`.
    """

    def __init__(
        self, in_channels: int, out_channels: int, heads: int = 1, concat: bool = True,
        negative_slope: float = 0.2, *, add_self_loops: bool = True, edge_dim: int | None = None,
        fill_value: float | str = "mean", bias: bool = True, share_weights: bool = False,
        residual: bool = False, act: str | None = None, **unsupported: Any,
    ) -> None:  # fmt: skip
        refuse("GATv2Conv", unsupported)
        super().__init__(
            in_channels, out_channels, heads, concat, negative_slope, add_self_loops, edge_dim, fill_value,
            bias, residual, act,
        )  # fmt: skip
        width = heads * out_channels
        self.share_weights = share_weights
        self.lin_l = nn.Linear(in_channels, width, bias=bias)
        self.lin_r = self.lin_l if share_weights else nn.Linear(in_channels, width, bias=bias)
        self.att = _scores(heads, out_channels)
        self._set_widths(message=2 * width, edge=width)

    @property
    def attention(self) -> AttentionSpec:  # type: ignore[override]
        scores = self.att.reshape(self.heads, self.out_channels)
        return AttentionSpec(self.heads, self.out_channels, self.negative_slope, scores)

    @property
    def loop_width(self) -> int:
        return 2 * self.heads * self.out_channels

    def message(self, x: Tensor) -> Tensor:
        return torch.cat([self.lin_l(x), self.lin_r(x)], 1)

    def loop(self, x: Tensor) -> Tensor:
        return self.message(x)

    def loop_logit(self, loop: Tensor, edge: Tensor | None) -> Tensor:
        width = self.heads * self.out_channels
        terms = loop[:, :width] + loop[:, width:]
        terms = nn.functional.leaky_relu(terms if edge is None else terms + edge, self.negative_slope)
        return (self.by_head(terms) * self.att).sum(-1)

    def edge(self, features: Tensor) -> Tensor:
        assert self.lin_edge is not None
        return self.lin_edge(features)  # type: ignore[no-any-return]


def _scores(heads: int, channels: int) -> nn.Parameter:
    scores = torch.empty(1, heads, channels)
    nn.init.xavier_uniform_(scores)
    return nn.Parameter(scores)
