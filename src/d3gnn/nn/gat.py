"""Graph attention (Veličković et al.: Graph Attention Networks, 2018; Brody, Alon, Yahav: How Attentive are
Graph Attention Networks?, 2022).
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from d3gnn.nn.layer import AttentionSpec, Layer, activate, check_activation, check_widths


class _Attention(Layer):
    """What the two kinds of attention have in common."""

    aggregator = "attention"
    reads_destination = True

    def __init__(
        self,
        in_width: int,
        channels: int,
        heads: int = 1,
        activation: str | None = None,
        *,
        concat: bool = True,
        slope: float = 0.2,
        loops: bool = True,
        edge_in: int = 0,
        fill: str | float = "mean",
        residual: bool = False,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.in_width, self.channels = check_widths(in_width, channels)
        if heads < 1:
            raise ValueError(f"heads={heads}: at least 1, please")
        if isinstance(fill, str) and fill != "mean":
            raise ValueError(f"fill={fill!r}: 'mean', or a number")
        self.heads, self.concat, self.slope, self.loops = heads, concat, slope, loops
        self.edge_in, self.fill, self.residual = edge_in, fill, residual
        self.activation = check_activation(activation)
        self.skips_loops = loops
        self.out_width = heads * channels if concat else channels
        self.res = nn.Linear(in_width, self.out_width, bias=False) if residual else None
        self.lin_edge = nn.Linear(edge_in, heads * channels, bias=False) if edge_in else None
        self.bias = nn.Parameter(torch.zeros(self.out_width)) if bias else None

    @abstractmethod
    def own(self, x: Tensor) -> Tensor:
        """What a vertex keeps for the edge to itself: [n, own_width]."""

    @abstractmethod
    def own_logit(self, own: Tensor, edge: Tensor | None) -> Tensor:
        """Of the edge of each vertex to itself: [n, heads]; `edge` is what such an edge adds."""

    @property
    @abstractmethod
    def own_width(self) -> int: ...

    def joined(self, own: Tensor) -> Tensor:
        """What a vertex is joined by: [n, heads, channels]."""
        return own[:, : self.heads * self.channels].reshape(-1, self.heads, self.channels)

    def root(self, x: Tensor) -> Tensor:
        parts = [self.own(x)] if self.loops else []
        if self.res is not None:
            parts.append(self.res(x))
        return torch.cat(parts, 1) if parts else x.new_zeros((len(x), 1))

    def update(self, root: Tensor, aggregate: Tensor) -> Tensor:
        heads, channels = self.heads, self.channels
        joined = heads * channels
        largest, total = aggregate[:, :heads], aggregate[:, heads : 2 * heads]
        weighted = aggregate[:, 2 * heads : 2 * heads + joined].reshape(-1, heads, channels)
        edges = aggregate[:, 2 * heads + joined :]
        if self.loops:
            own = root[:, : self.own_width]
            logit = self.own_logit(own, self._filled(edges))
            both = torch.maximum(largest, logit)
            theirs, mine = torch.exp(largest - both), torch.exp(logit - both)
            total = total * theirs + mine
            weighted = weighted * theirs.unsqueeze(-1) + mine.unsqueeze(-1) * self.joined(own)
        out = weighted / (total + 1e-16).unsqueeze(-1)
        out = out.flatten(1) if self.concat else out.mean(1)
        if self.res is not None:
            out = out + root[:, -self.out_width :]
        return activate(self.activation, out if self.bias is None else out + self.bias)

    def _filled(self, mean: Tensor) -> Tensor | None:
        """What the edge of a vertex to itself adds: the mean of what its in-edges do, or that of a number."""
        if not self.edge_in:
            return None
        if isinstance(self.fill, str):
            return mean
        return self.edge(mean.new_full((1, self.edge_in), self.fill)).expand(len(mean), -1)

    def config(self) -> dict[str, Any]:
        return {
            "in_width": self.in_width,
            "channels": self.channels,
            "heads": self.heads,
            "activation": self.activation,
            "concat": self.concat,
            "slope": self.slope,
            "loops": self.loops,
            "edge_in": self.edge_in,
            "fill": self.fill,
            "residual": self.residual,
            "bias": self.bias is not None,
        }


class GAT(_Attention):
    r"""Graph attention, with the equations and parameters of torch_geometric's `GATConv`.

    .. math:: x_v' = \sigma(b + \sum_{u} \alpha_{uv} W x_u), \quad
        \alpha_{uv} = \text{softmax}_u(\text{leakyrelu}(a_1 W x_u + a_2 W x_v + a_3 W_e e_{uv}))

    for each of `heads` heads of `channels` numbers, which are put side by side (`concat`) or averaged. With
    `loops`, edges of a vertex to itself are replaced by one, whose feature is the mean of its in-edges', or
    the number `fill`. `edge_in` is how many numbers the features of edges have; 0 leaves them out.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        heads, channels = self.heads, self.channels
        self.lin = nn.Linear(self.in_width, heads * channels, bias=False)
        self.att_src, self.att_dst = _scores(heads, channels), _scores(heads, channels)
        self.att_edge = _scores(heads, channels) if self.edge_in else None
        self.edge_width = heads if self.edge_in else 0
        self.message_width = heads * (channels + 2)
        own = self.own_width if self.loops else 0
        self.root_width = max(1, own + (self.out_width if self.residual else 0))

    @property
    def attention(self) -> AttentionSpec:  # type: ignore[override]
        return AttentionSpec(self.heads, self.channels, self.slope)

    @property
    def own_width(self) -> int:
        return self.heads * (self.channels + 1)

    def message(self, x: Tensor) -> Tensor:
        sent = self.lin(x)
        by_head = sent.view(-1, self.heads, self.channels)
        terms = [(by_head * att).sum(-1) for att in (self.att_src, self.att_dst)]
        return torch.cat([sent, *terms], 1)

    def own(self, x: Tensor) -> Tensor:
        sent = self.lin(x)
        logit = (sent.view(-1, self.heads, self.channels) * (self.att_src + self.att_dst)).sum(-1)
        return torch.cat([sent, logit], 1)

    def own_logit(self, own: Tensor, edge: Tensor | None) -> Tensor:
        plain = own[:, self.heads * self.channels :]
        return nn.functional.leaky_relu(plain if edge is None else plain + edge, self.slope)

    def edge(self, features: Tensor) -> Tensor:
        assert self.lin_edge is not None
        assert self.att_edge is not None
        by_head: Tensor = self.lin_edge(features).view(-1, self.heads, self.channels) * self.att_edge
        return by_head.sum(-1)


class GATv2(_Attention):
    r"""Dynamic attention, with the equations and parameters of torch_geometric's `GATv2Conv`.

    .. math:: x_v' = \sigma(b + \sum_{u} \alpha_{uv} W_l x_u), \quad
        \alpha_{uv} = \text{softmax}_u(a\, \text{leakyrelu}(W_l x_u + W_r x_v + W_e e_{uv}))

    W_l and W_r have biases of their own; with `share`, they are one. The rest is as in `GAT`.
    """

    def __init__(self, *args: Any, share: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        width = self.heads * self.channels
        biased = self.bias is not None
        self.share = share
        self.lin_l = nn.Linear(self.in_width, width, bias=biased)
        self.lin_r = self.lin_l if share else nn.Linear(self.in_width, width, bias=biased)
        self.att = _scores(self.heads, self.channels)
        self.edge_width = width if self.edge_in else 0
        self.message_width = 2 * width
        own = self.own_width if self.loops else 0
        self.root_width = max(1, own + (self.out_width if self.residual else 0))

    @property
    def attention(self) -> AttentionSpec:  # type: ignore[override]
        scores = self.att.detach().numpy().reshape(self.heads, self.channels).copy()
        return AttentionSpec(self.heads, self.channels, self.slope, scores)

    @property
    def own_width(self) -> int:
        return 2 * self.heads * self.channels

    def message(self, x: Tensor) -> Tensor:
        return torch.cat([self.lin_l(x), self.lin_r(x)], 1)

    def own(self, x: Tensor) -> Tensor:
        return self.message(x)

    def own_logit(self, own: Tensor, edge: Tensor | None) -> Tensor:
        width = self.heads * self.channels
        plain = own[:, :width] + own[:, width:]
        plain = nn.functional.leaky_relu(plain if edge is None else plain + edge, self.slope)
        return (plain.view(-1, self.heads, self.channels) * self.att).sum(-1)

    def edge(self, features: Tensor) -> Tensor:
        assert self.lin_edge is not None
        return self.lin_edge(features)  # type: ignore[no-any-return]

    def config(self) -> dict[str, Any]:
        return {**super().config(), "share": self.share}


def _scores(heads: int, channels: int) -> nn.Parameter:
    scores = torch.empty(1, heads, channels)
    nn.init.xavier_uniform_(scores)
    return nn.Parameter(scores)
