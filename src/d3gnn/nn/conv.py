"""What the convolutions have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from d3gnn.nn.activation import check_act
from d3gnn.nn.aggregation import check_aggr
from d3gnn.nn.arguments import arguments_of
from d3gnn.nn.layer import Layer


class Conv(Layer):
    """A layer with channels, as PyG's convolutions have them.

    in_channels, out_channels:
        Numbers in a row of the input, and of the output for each head.
    aggr:
        The aggregation; several only if `several`, otherwise they are refused.
    edge_weight:
        Whether the one feature of each edge multiplies its message. An edge without it has weight 1.
    act:
        An activation that is applied to the output, by name.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        aggr: str | Sequence[str],
        *,
        several: bool = False,
        edge_weight: bool = False,
        bias: bool = True,
        act: str | None = None,
    ) -> None:
        super().__init__()
        for name, channels in (("in_channels", in_channels), ("out_channels", out_channels)):
            if not isinstance(channels, int):
                raise TypeError(
                    f"{name}={channels!r}: it must be an integer; bipartite layers are not supported"
                )
            if channels < 1:
                raise ValueError(f"{name}={channels}: it must be at least 1 (it is not inferred from data)")
        self.in_channels = self.in_width = in_channels
        self.out_channels = self.out_width = out_channels
        self.aggr = check_aggr(aggr)
        if "," in self.aggr and not several:
            raise ValueError(f"aggr={aggr!r}: {type(self).__name__} takes a single aggregation")
        self.act, self.has_bias, self.edge_weight = check_act(act), bias, edge_weight
        self.edge_dim = self.edge_width = int(edge_weight)
        self.edge_default = 1.0

    def config(self) -> dict[str, Any]:
        # The attribute `bias` is a tensor, or there is none.
        return arguments_of(self, bias=self.has_bias)


def no_root(x: Tensor) -> Tensor:
    """The root of layers whose update needs none: a column of zeros, as rows must have a width."""
    return x.new_zeros((len(x), 1))


def apply_if(condition: bool, lin: nn.Linear, x: Tensor) -> Tensor:
    """The product with a linear layer's weight, without its bias, or x itself."""
    return x @ lin.weight.T if condition else x
