"""GIN (Xu et al.: How Powerful are Graph Neural Networks?, 2019)."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from d3gnn.nn.layer import Layer, activate, check_activation, check_aggregator, check_widths, is_linear
from d3gnn.nn.modules import build, describe
from d3gnn.nn.modules import out_width as width_behind


class GIN(Layer):
    r"""A vertex and the sum of its neighbours through a network, as torch_geometric's `GINConv`.

    .. math:: x_v' = \sigma(h((1 + \epsilon)\, x_v + \rho_{u \in N_{in}(v)} x_u))

    h is `net`, made of modules that work on each row alone; without one, two linear layers with a relu
    between them. Where it begins with a linear layer that makes values narrower, that is applied before they
    travel.
    """

    def __init__(
        self,
        in_width: int,
        out_width: int,
        aggregator: str = "sum",
        activation: str | None = None,
        *,
        net: nn.Module | None = None,
        eps: float = 0.0,
    ) -> None:
        super().__init__()
        self.in_width, self.out_width = check_widths(in_width, out_width)
        self.aggregator, self.activation = check_aggregator(aggregator), check_activation(activation)
        if "," in aggregator:
            raise ValueError(f"aggregator={aggregator!r}: GIN has one")
        if net is None:
            net = nn.Sequential(nn.Linear(in_width, out_width), nn.ReLU(), nn.Linear(out_width, out_width))
        describe(net)  # says what cannot be taken
        if width_behind(net, in_width) != out_width:
            raise ValueError(f"net gives {width_behind(net, in_width)} numbers, not {out_width}")
        self.net = net if isinstance(net, nn.Sequential) else nn.Sequential(net)
        self.eps: Tensor
        self.register_buffer("eps", torch.tensor([float(eps)]))
        first = self.net[0] if len(self.net) else None
        self.narrows = (
            isinstance(first, nn.Linear) and first.out_features < in_width and is_linear(aggregator)
        )
        self.sends_value = not self.narrows
        self.message_width = cast(nn.Linear, first).out_features if self.narrows else in_width
        self.root_width = self.message_width

    def message(self, x: Tensor) -> Tensor:
        return x @ cast(nn.Linear, self.net[0]).weight.T if self.narrows else x

    def root(self, x: Tensor) -> Tensor:
        return self.message(x)

    def update(self, root: Tensor, aggregate: Tensor) -> Tensor:
        out = aggregate + (1.0 + self.eps) * root
        if self.narrows:
            bias: Tensor | None = cast(nn.Linear, self.net[0]).bias
            out = self.net[1:](out if bias is None else out + bias)
        else:
            out = self.net(out)
        return activate(self.activation, out)

    def config(self) -> dict[str, Any]:
        return {
            "in_width": self.in_width,
            "out_width": self.out_width,
            "aggregator": self.aggregator,
            "activation": self.activation,
            "net": describe(self.net),
            "eps": 0.0,  # a weight like others
        }

    @classmethod
    def of(cls, config: dict[str, Any]) -> GIN:
        return cls(**{**config, "net": build(config["net"])})
