"""GraphConv (Morris et al.: Weisfeiler and Leman Go Neural, 2019)."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from d3gnn.nn.layer import Layer, activate, check_activation, check_aggregator, check_widths, is_linear


class GraphConv(Layer):
    r"""A weighted sum of neighbours, with the equation and parameters of torch_geometric's `GraphConv`.

    .. math:: x_v' = \sigma(W_1\, \rho_{u \in N_{in}(v)} e_{uv} x_u + b + W_2 x_v)

    `weighted` takes e from the one feature of edges, 1 for an edge that has none.
    """

    def __init__(
        self,
        in_width: int,
        out_width: int,
        aggregator: str = "sum",
        activation: str | None = None,
        *,
        weighted: bool = False,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.in_width, self.out_width = check_widths(in_width, out_width)
        self.aggregator, self.activation = check_aggregator(aggregator), check_activation(activation)
        if "," in aggregator:
            raise ValueError(f"aggregator={aggregator!r}: GraphConv has one")
        self.weighted, self.biased = weighted, bias
        self.edge_in = self.edge_width = int(weighted)
        self.edge_default = 1.0
        self.narrows = out_width < in_width and is_linear(aggregator)
        self.sends_value = not self.narrows
        self.message_width = self.root_width = out_width if self.narrows else in_width
        self.lin_rel = nn.Linear(in_width, out_width, bias=bias)
        self.lin_root = nn.Linear(in_width, out_width, bias=False)

    def message(self, x: Tensor) -> Tensor:
        return x @ self.lin_rel.weight.T if self.narrows else x

    def root(self, x: Tensor) -> Tensor:
        return x @ self.lin_root.weight.T if self.narrows else x

    def update(self, root: Tensor, aggregate: Tensor) -> Tensor:
        if self.narrows:
            out = aggregate + root
            out = out + self.lin_rel.bias if self.biased else out
        else:
            out = self.lin_rel(aggregate) + self.lin_root(root)
        return activate(self.activation, out)

    def config(self) -> dict[str, Any]:
        return {
            "in_width": self.in_width,
            "out_width": self.out_width,
            "aggregator": self.aggregator,
            "activation": self.activation,
            "weighted": self.weighted,
            "bias": self.biased,
        }
