"""A layer with what surrounds it at each vertex: normalisation, activation, skip connections, jumping
knowledge.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from d3gnn.nn.arguments import arguments_of
from d3gnn.nn.layer import DEGREE_WIDTH, AttentionSpec, Layer, layer_config, make_layer
from d3gnn.nn.modules import Jump, out_features

Keep = Literal["cat", "max"]


class Stage(Layer):
    r"""A layer, then `after`, then a skip connection; optionally with rows that keep earlier outputs.

    .. math:: x_v' = \text{after}(\text{layer}(x)_v) \; [+ \; x_v \text{ if } \texttt{residual}]

    after:
        Modules that work on each row alone, such as a normalisation and an activation.
    residual:
        Add the input to the output.
    carried:
        Numbers behind the layer's own input in each row: outputs of earlier layers, kept for `final`.
    keep:
        Add the layer's input to the carried numbers: concatenated (`cat`), or the larger of each (`max`).
    final:
        A module that makes the output from the whole row: the layer's output, followed by the carried
        numbers.

    >>> from d3gnn.nn import SAGEConv
    >>> Stage(SAGEConv(8, 16), nn.ReLU(), carried=3, keep="cat").out_width
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
        final: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.layer, self.after, self.final = layer, after or nn.Identity(), final or nn.Identity()
        self.residual, self.carried, self.keep = residual, carried, keep
        own = layer.in_width
        width = out_features(self.after, layer.out_width)
        if residual and width != own:
            raise ValueError(f"residual=True adds {own} inputs to {width} outputs: they must be equally many")
        if keep == "max" and carried not in (0, own):
            raise ValueError(f"keep='max' compares {own} inputs with carried={carried}: use 0 or {own}")
        self._kept = {"cat": carried + own, "max": own}[keep] if keep else carried
        self.in_width = own + carried
        self.out_width = out_features(self.final, width + self._kept)
        # An update that needs the input itself gets it beside the root, unless the root is the input.
        self._input = own if (residual or keep) and not layer.sends_input else 0
        copy_contract(layer, self)
        self.root_width = layer.root_width + self._input + carried
        self.sends_input = layer.sends_input and not carried

    @property
    def attention(self) -> AttentionSpec | None:  # type: ignore[override]
        return self.layer.attention

    def prepare(self) -> None:
        self.layer.prepare()
        if isinstance(self.after, nn.Identity) and isinstance(self.final, nn.Identity):
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
            parts.append(x[:, self.layer.in_width : self.in_width])
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)

    def edge(self, features: Tensor) -> Tensor:
        return self.layer.edge(features)

    def edge_message(self, source: Tensor, destination: Tensor, edge: Tensor) -> Tensor:
        return self.layer.edge_message(source, destination, edge)

    @property
    def makes_edge_messages(self) -> bool:
        return self.layer.makes_edge_messages

    def update(self, root: Tensor, aggregate: Tensor) -> Tensor:
        split = self.layer.root_width
        own, carried = root[:, :split], root[:, split + self._input :]
        x = root[:, split : split + self._input] if self._input else own
        out = self.after(self.layer.update(own, aggregate))
        if self.residual:
            out = out + x
        if self.keep == "cat":
            carried = torch.cat([carried, x], 1)
        elif self.keep == "max":
            carried = torch.maximum(carried, x) if self.carried else x
        row = torch.cat([out, carried], 1) if self._kept else out
        return cast(Tensor, self.final(row))

    def config(self) -> dict[str, Any]:
        return arguments_of(self, layer=layer_config(self.layer))

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Layer:
        return super().from_config(config | {"layer": make_layer(config["layer"])})

    def _own(self, x: Tensor) -> Tensor:
        """The layer's own input, followed by the degree if it needs that."""
        own = x[:, : self.layer.in_width]
        return torch.cat([own, x[:, -DEGREE_WIDTH:]], 1) if self.needs_degree else own


def copy_contract(layer: Layer, outer: Layer) -> None:
    """Give a layer around another one the same properties along edges."""
    outer.aggr, outer.message_width = layer.aggr, layer.message_width
    outer.edge_dim, outer.edge_width, outer.edge_default = (
        layer.edge_dim,
        layer.edge_width,
        layer.edge_default,
    )
    outer.reads_destination, outer.skips_self_loops = layer.reads_destination, layer.skips_self_loops
    outer.needs_degree, outer.edge_message_width = layer.needs_degree, layer.edge_message_width


def stages_of(
    layers: Sequence[Layer], after: Sequence[nn.Module], jk: str | None, lin: nn.Module | None
) -> list[Layer]:
    """Layers with modules after each, and jumping knowledge at the end, as in PyG's models.

    `jk` is None, `last`, `cat` or `max`. With jumping knowledge, `after` applies to the last layer too, and
    `lin` makes the output. Layers that need no stage are returned as they are.
    """
    last = len(layers) - 1
    keep = cast(Keep, jk) if jk in ("cat", "max") else None
    stages: list[Layer] = []
    carried = 0
    for i, (layer, following) in enumerate(zip(layers, after, strict=True)):
        if i == last and jk is None:
            stages.append(layer)
            break
        final: list[nn.Module] = []
        if i == last:
            final = [Jump(keep, out_features(following, layer.out_width))] if keep and i else []
            final += [lin] if lin is not None else []
        kept = keep if i else None
        if not isinstance(following, nn.Identity) or carried or kept or final:
            stages.append(Stage(layer, following, carried=carried, keep=kept, final=in_sequence(final)))
        else:
            stages.append(layer)
        if kept:
            carried = carried + layer.in_width if kept == "cat" else layer.in_width
    return stages


def in_sequence(modules: Sequence[nn.Module]) -> nn.Module:
    """Several modules as one, without those that do nothing in inference."""
    doing = [module for module in modules if not isinstance(module, nn.Identity | nn.Dropout)]
    if not doing:
        return nn.Identity()
    return doing[0] if len(doing) == 1 else nn.Sequential(*doing)
