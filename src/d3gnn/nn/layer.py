"""The contract of a GNN layer: message, aggregator, update."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from d3gnn.types import Floats

_KINDS: dict[str, type[Layer]] = {}

_ACTIVATIONS = {"relu": torch.relu_, "tanh": torch.tanh, "elu": nn.functional.elu, None: None}
#: What a vertex's degree is, in numbers: the weights of its in-edges and of its loops, summed, the weight of
#: its heaviest loop, and how many loops it has.
DEGREE_WIDTH = 4


class Affine(NamedTuple):
    """An update that is `aggregate @ left + root @ right + bias`, and 0 for what is below it if `relu`."""

    left: Floats
    right: Floats
    bias: Floats
    relu: bool


class AttentionSpec(NamedTuple):
    """What the aggregator `attention` computes; see `d3gnn.kernel.aggregators.attention`."""

    heads: int
    channels: int
    slope: float = 0.2
    #: [heads, channels], where a logit is a product with these.
    scores: Floats | None = None


class Layer(nn.Module):
    r"""One layer of message passing (the paper's section 3.3).

    .. math:: x_v' = \psi(\text{root}(x_v), \rho_{u \in N_{in}(v)} \text{message}(x_u))

    `message` and `root` are computed once per vertex, where the vertex lives, and travel from there; so a
    layer should make each as narrow as its equation allows. `update` joins them. All three see a matrix with
    one row per vertex and must treat rows independently.
    """

    #: Name of the aggregator, or several with commas between; see `d3gnn.kernel.aggregators`.
    aggregator: str
    #: Of the aggregator `attention`.
    attention: AttentionSpec | None = None
    in_width: int
    out_width: int
    message_width: int
    root_width: int
    #: Whether message and root are both the vertex's value itself: it then travels once.
    sends_value: bool = False
    #: What `update` computes, where that is so simple: for a few rows, a call of torch takes longer than the
    #: arithmetic. Known after `prepare`.
    affine: Affine | None = None
    #: How many numbers the features of an edge have, and how many `edge` makes of them; 0 for none. Numbers
    #: that an edge lacks are `edge_default`. For all aggregators but attention it is one number, by which
    #: the message is multiplied.
    edge_in: int = 0
    edge_width: int = 0
    edge_default: float = 0.0
    #: Whether messages depend on their destination: it then gets its own message as well.
    reads_destination: bool = False
    #: How wide messages are that the layer makes for each edge.
    joined_width: int = 0
    #: Whether edges from a vertex to itself carry nothing.
    skips_loops: bool = False
    #: Whether `message`, `root` and `update` want to know degrees: x has DEGREE_WIDTH numbers more, behind
    #: its own.
    uses_degree: bool = False
    kind: ClassVar[str]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.kind = cls.__name__
        _KINDS[cls.kind] = cls

    def message(self, x: Tensor) -> Tensor:
        """What a source sends along its out-edges: [n, in_width] -> [n, message_width]."""
        raise NotImplementedError

    def root(self, x: Tensor) -> Tensor:
        """What a vertex keeps of itself for its own update: [n, in_width] -> [n, root_width]."""
        raise NotImplementedError

    def edge(self, features: Tensor) -> Tensor:
        """What an edge adds to its messages: [n, edge_in] -> [n, edge_width]."""
        return features

    def edge_message(self, source: Tensor, destination: Tensor, edge: Tensor) -> Tensor:
        """What travels along each edge, of what its two ends and the edge itself gave: [n, joined_width].

        A layer that has this is recomputed at every vertex into which a message has changed. One without it
        sends what `message` gives, times the edge's one value where it has one, and keeps up by differences.
        Set `joined_width`, and `reads_destination` if messages depend on their destination.
        """
        raise NotImplementedError

    @property
    def makes_edge_messages(self) -> bool:
        """Whether the layer has an `edge_message` of its own."""
        return type(self).edge_message is not Layer.edge_message

    def update(self, root: Tensor, aggregate: Tensor) -> Tensor:
        """The new value: [n, root_width], [n, aggregate_width] -> [n, out_width]."""
        raise NotImplementedError

    @property
    def aggregate_width(self) -> int:
        """How many numbers messages are joined to."""
        if self.attention is not None:
            return self.attention.heads * (2 + self.attention.channels) + self.edge_width
        width = self.joined_width if self.makes_edge_messages else self.message_width
        return len(self.aggregator.split(",")) * width

    def prepare(self) -> None:
        """Called once before the layer serves: lay out weights for speed. They stay fixed from then on."""

    def forward(self, root: Tensor, aggregate: Tensor) -> Tensor:
        return self.update(root, aggregate)

    def config(self) -> dict[str, Any]:
        """The arguments that make this layer again, as plain values."""
        raise NotImplementedError

    @classmethod
    def of(cls, config: dict[str, Any]) -> Layer:
        """The layer that `config` tells of, with new weights."""
        return cls(**config)


def activate(name: str | None, x: Tensor) -> Tensor:
    """Apply an activation by name, in place where that is faster; None leaves x as it is."""
    function = _ACTIVATIONS[name]
    return x if function is None else function(x)


def check_activation(name: str | None) -> str | None:
    if name not in _ACTIVATIONS:
        known = ", ".join(str(a) for a in _ACTIVATIONS)
        raise ValueError(f"activation={name!r}: choose one of {known}")
    return name


def check_aggregator(names: str) -> str:
    """Refuse names of aggregators that layers cannot be made with."""
    known = ("sum", "mean", "max", "min")
    given = names.split(",")
    if not set(given) <= set(known) or len(set(given)) < len(given):
        raise ValueError(
            f"aggregator={names!r}: choose of {', '.join(known)}, or several with commas between"
        )
    return names


def is_linear(aggregator: str) -> bool:
    """Whether weights may be applied before messages are joined instead of after."""
    return aggregator in ("sum", "mean")


def check_widths(in_width: int, out_width: int) -> tuple[int, int]:
    if in_width < 1 or out_width < 1:
        raise ValueError(f"widths {in_width} -> {out_width}: at least 1 each, please")
    return in_width, out_width


def make_layer(config: dict[str, Any]) -> Layer:
    """A layer from `{"kind": ..., **config}`."""
    arguments = dict(config)
    kind = arguments.pop("kind", None)
    if kind not in _KINDS:
        raise ValueError(f"no layer of kind {kind!r} is known; known are {', '.join(sorted(_KINDS))}")
    return _KINDS[kind].of(arguments)
