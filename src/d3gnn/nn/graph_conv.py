"""GraphConv (Morris et al.: Weisfeiler and Leman Go Neural, 2019)."""

from __future__ import annotations

from torch import Tensor, nn

from d3gnn.nn.activation import activate
from d3gnn.nn.aggregation import is_linear
from d3gnn.nn.conv import Conv, apply_if


class GraphConv(Conv):
    r"""A weighted sum of neighbours, with the equation and parameters of PyG's `GraphConv`.

    .. math:: x_v' = \sigma(W_1\, \text{aggr}_{u \in N_{in}(v)} e_{uv} x_u + b + W_2 x_v)

    aggr:
        `sum` (or `add`), `mean`, `max` or `min`.
    edge_weight:
        Take e from the one feature of edges; 1 for an edge without it, and everywhere if False.
    act:
        Activation of the output: `relu`, `tanh`, `elu` or None.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        aggr: str = "add",
        bias: bool = True,
        *,
        edge_weight: bool = False,
        act: str | None = None,
    ) -> None:
        super().__init__(in_channels, out_channels, aggr, edge_weight=edge_weight, bias=bias, act=act)
        self.transforms_first = out_channels < in_channels and is_linear(self.aggr)
        self.sends_input = not self.transforms_first
        self.message_width = self.root_width = out_channels if self.transforms_first else in_channels
        self.lin_rel = nn.Linear(in_channels, out_channels, bias=bias)
        self.lin_root = nn.Linear(in_channels, out_channels, bias=False)

    def message(self, x: Tensor) -> Tensor:
        return apply_if(self.transforms_first, self.lin_rel, x)

    def root(self, x: Tensor) -> Tensor:
        return apply_if(self.transforms_first, self.lin_root, x)

    def update(self, root: Tensor, aggregate: Tensor) -> Tensor:
        if self.transforms_first:
            out = aggregate + root
            out = out + self.lin_rel.bias if self.has_bias else out
        else:
            out = self.lin_rel(aggregate) + self.lin_root(root)
        return activate(self.act, out)
