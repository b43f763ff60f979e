"""GIN (Xu et al.: How Powerful are Graph Neural Networks?, 2019)."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import Linear, Module, Parameter, Sequential

from d3gnn.nn.activation import activate
from d3gnn.nn.aggregation import is_linear
from d3gnn.nn.arguments import arguments_of
from d3gnn.nn.conv import Conv, apply_if
from d3gnn.nn.modules import describe, in_features, out_features


class GINConv(Conv):
    r"""A vertex plus the sum of its neighbours, through a network: PyG's `GINConv`.

    .. math:: x_v' = \sigma(h((1 + \epsilon)\, x_v + \text{aggr}_{u \in N_{in}(v)} x_u))

    nn:
        The network h: one or several modules of torch that work on each row alone. Its first linear layer (or
        normalisation) determines `in_channels`, its last one `out_channels`.
    eps, train_eps:
        The value of epsilon, and whether it is a parameter.
    aggr:
        `sum` (or `add`), `mean`, `max` or `min`.
    act:
        Activation of the output: `relu`, `tanh`, `elu` or None.

    If `nn` starts with a linear layer that narrows its input, that layer is applied before values are sent.

    >>> GINConv(Sequential(Linear(8, 16), torch.nn.ReLU(), Linear(16, 4))).out_channels
    4
    """

    def __init__(
        self, nn: Module, eps: float = 0.0, train_eps: bool = False, *, aggr: str = "add",
        act: str | None = None,
    ) -> None:  # fmt: skip
        describe(nn)  # refuses modules that cannot be saved
        in_channels = in_features(nn)
        if in_channels is None:
            raise ValueError("nn: the network of a GINConv needs a Linear layer, which determines its width")
        super().__init__(in_channels, out_features(nn, in_channels), aggr, act=act)
        self.nn = nn if isinstance(nn, Sequential) else Sequential(nn)
        self.eps: Tensor
        self.train_eps = train_eps
        initial = torch.tensor([float(eps)])
        if train_eps:
            self.eps = Parameter(initial)
        else:
            self.register_buffer("eps", initial)
        first = self.nn[0]
        self.transforms_first = (
            isinstance(first, Linear) and first.out_features < in_channels and is_linear(self.aggr)
        )
        self.sends_input = not self.transforms_first
        self.message_width = cast(Linear, first).out_features if self.transforms_first else in_channels
        self.root_width = self.message_width

    def message(self, x: Tensor) -> Tensor:
        return apply_if(self.transforms_first, cast(Linear, self.nn[0]), x)

    def root(self, x: Tensor) -> Tensor:
        return self.message(x)

    def update(self, root: Tensor, aggregate: Tensor) -> Tensor:
        out = aggregate + (1.0 + self.eps) * root
        if self.transforms_first:
            bias: Tensor | None = cast(Linear, self.nn[0]).bias
            out = self.nn[1:](out if bias is None else out + bias)
        else:
            out = self.nn(out)
        return activate(self.act, out)

    def config(self) -> dict[str, Any]:
        return arguments_of(self, eps=0.0)  # its value is stored with the weights
