"""A layer with what follows it at each vertex, and what is kept of earlier layers: normalisation, activation,
skip connections, jumping knowledge.
"""

from __future__ import annotations

from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from d3gnn.nn.layer import DEGREE_WIDTH, AttentionSpec, Layer, make_layer
from d3gnn.nn.modules import build, describe, out_width

Keep = Literal["cat", "max"]


class Stage(Layer):
    r"""A layer, then `after` (modules that work on each row alone), then a skip connection.

    .. math:: x_v' = \text{after}(\text{layer}(x)_v) \; [+ \; x_v \text{ if } \texttt{residual}]

    What earlier layers gave is carried along in the row, `carried` numbers behind the layer's own input: with
    `keep`, the input is added to it, side by side (`cat`) or as the larger of each number (`max`). `ends`
    makes the output of the whole row at last: the layer's output, and behind it what was carried.

    >>> from d3gnn.nn import SAGE
    >>> Stage(SAGE(8, 16), nn.ReLU(), carried=3, keep="cat").out_width
    27
    """

    def __init__(
        self,
        layer: Layer,
        after: nn.Module | None = None,
        *,
        residual: bool = False,
        carried: int = 0,
        keep: Keep | None = None,
        ends: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.layer, self.after, self.ends = layer, after or nn.Identity(), ends or nn.Identity()
        self.residual, self.carried, self.keep = residual, carried, keep
        own = layer.in_width
        width = out_width(self.after, layer.out_width)
        if residual and width != own:
            raise ValueError(f"a skip connection from {own} numbers to {width}: they must be as many")
        if keep == "max" and carried not in (0, own):
            raise ValueError(f"the larger of {carried} and {own} numbers: they must be as many")
        self._kept = {"cat": carried + own, "max": own}[keep] if keep else carried
        self.in_width = own + carried
        self.out_width = out_width(self.ends, width + self._kept)
        # An update that needs the input itself gets it with the root, unless the root is just that.
        self._input = own if (residual or keep) and not layer.sends_value else 0
        _be_like(self, layer)
        self.root_width = layer.root_width + self._input + carried
        self.sends_value = layer.sends_value and not carried

    @property
    def attention(self) -> AttentionSpec | None:  # type: ignore[override]
        return self.layer.attention

    def prepare(self) -> None:
        self.layer.prepare()
        if isinstance(self.after, nn.Identity) and isinstance(self.ends, nn.Identity):
            plain = not (self.residual or self.keep or self.carried)
            self.affine = self.layer.affine if plain else None

    def message(self, x: Tensor) -> Tensor:
        return self.layer.message(self._own(x))

    def root(self, x: Tensor) -> Tensor:
        own = self._own(x)
        parts = [self.layer.root(own)]
        if self._input:
            parts.append(x[:, : self.layer.in_width])
        if self.carried:
            parts.append(self._carried(x))
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)

    def edge(self, features: Tensor) -> Tensor:
        return self.layer.edge(features)

    def edge_message(self, source: Tensor, destination: Tensor, edge: Tensor) -> Tensor:
        return self.layer.edge_message(source, destination, edge)

    @property
    def makes_edge_messages(self) -> bool:
        return self.layer.makes_edge_messages

    def update(self, root: Tensor, aggregate: Tensor) -> Tensor:
        mine = self.layer.root_width
        own, carried = root[:, :mine], root[:, mine + self._input :]
        x = root[:, mine : mine + self._input] if self._input else own
        out = self.after(self.layer.update(own, aggregate))
        if self.residual:
            out = out + x
        if self.keep == "cat":
            carried = torch.cat([carried, x], 1)
        elif self.keep == "max":
            carried = torch.maximum(carried, x) if self.carried else x
        row = torch.cat([out, carried], 1) if self._kept else out
        return cast(Tensor, self.ends(row))

    def config(self) -> dict[str, Any]:
        return {
            "layer": {"kind": self.layer.kind, **self.layer.config()},
            "after": describe(self.after),
            "residual": self.residual,
            "carried": self.carried,
            "keep": self.keep,
            "ends": describe(self.ends),
        }

    @classmethod
    def of(cls, config: dict[str, Any]) -> Stage:
        return cls(
            make_layer(config["layer"]),
            build(config["after"]),
            residual=config["residual"],
            carried=config["carried"],
            keep=config["keep"],
            ends=build(config["ends"]),
        )

    def _own(self, x: Tensor) -> Tensor:
        """The layer's own input; with the degree behind it, if it wants that."""
        own = x[:, : self.layer.in_width]
        return torch.cat([own, x[:, -DEGREE_WIDTH:]], 1) if self.uses_degree else own

    def _carried(self, x: Tensor) -> Tensor:
        return x[:, self.layer.in_width : self.in_width]


def _be_like(outer: Layer, layer: Layer) -> None:
    """On edges, a layer around another is as that one."""
    outer.aggregator, outer.message_width = layer.aggregator, layer.message_width
    outer.edge_in, outer.edge_width, outer.edge_default = layer.edge_in, layer.edge_width, layer.edge_default
    outer.reads_destination, outer.skips_loops = layer.reads_destination, layer.skips_loops
    outer.uses_degree, outer.joined_width = layer.uses_degree, layer.joined_width


class WithDegree(Layer):
    """A layer in a model of which some layers want to know degrees: they ride at the end of every row.

    Those numbers are `DEGREE_WIDTH`: the weights of in-edges, of loops, of the heaviest loop, and how many
    loops there are. `passes_on` says whether a later layer wants them too.
    """

    def __init__(self, layer: Layer, passes_on: bool) -> None:
        super().__init__()
        self._layer, self.passes_on = [layer], passes_on  # in a list: the weights belong to the model
        more = DEGREE_WIDTH if passes_on else 0
        self.in_width, self.out_width = layer.in_width + DEGREE_WIDTH, layer.out_width + more
        self.root_width = layer.root_width + more
        _be_like(self, layer)

    @property
    def layer(self) -> Layer:
        return self._layer[0]

    @property
    def attention(self) -> AttentionSpec | None:  # type: ignore[override]
        return self.layer.attention

    def prepare(self) -> None:
        self.layer.prepare()

    def message(self, x: Tensor) -> Tensor:
        return self.layer.message(self._seen(x))

    def root(self, x: Tensor) -> Tensor:
        root = self.layer.root(self._seen(x))
        return torch.cat([root, x[:, -DEGREE_WIDTH:]], 1) if self.passes_on else root

    def edge(self, features: Tensor) -> Tensor:
        return self.layer.edge(features)

    def edge_message(self, source: Tensor, destination: Tensor, edge: Tensor) -> Tensor:
        return self.layer.edge_message(source, destination, edge)

    @property
    def makes_edge_messages(self) -> bool:
        return self.layer.makes_edge_messages

    def update(self, root: Tensor, aggregate: Tensor) -> Tensor:
        out = self.layer.update(root[:, : self.layer.root_width], aggregate)
        return torch.cat([out, root[:, -DEGREE_WIDTH:]], 1) if self.passes_on else out

    def config(self) -> dict[str, Any]:
        return self.layer.config()

    def _seen(self, x: Tensor) -> Tensor:
        return x if self.uses_degree else x[:, :-DEGREE_WIDTH]
