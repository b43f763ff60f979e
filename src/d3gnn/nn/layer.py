"""The contract of a layer: message, aggregation, update."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

from torch import Tensor, nn

from d3gnn.nn.arguments import arguments_of, from_arguments
from d3gnn.nn.forward import layer_forward
from d3gnn.registry import register
from d3gnn.types import Floats

_TYPES: dict[str, type[Layer]] = {}

#: Numbers in a vertex's degree: the summed weights of its in-edges and of its self-loops, the weight of its
#: heaviest self-loop, and the number of self-loops.
DEGREE_WIDTH = 4


class Affine(NamedTuple):
    """An update of the form `aggregate @ left + root @ right + bias`, followed by a relu if `relu`."""

    left: Floats
    right: Floats
    bias: Floats
    relu: bool


class AttentionSpec(NamedTuple):
    """What the aggregation `attention` computes; see `d3gnn.kernel.aggregators.attention`."""

    heads: int
    channels: int
    slope: float = 0.2
    #: [heads, channels] if a logit is a product with these (GATv2).
    scores: Tensor | None = None


class Layer(nn.Module):
    r"""One layer of message passing (section 3.3 of the paper).

    .. math:: x_v' = \text{update}(\text{root}(x_v), \text{aggregate}_{u \in N_{in}(v)} \text{message}(x_u))

    A custom layer sets the attributes below, and implements `message`, `root` and `update`. Each gets a
    matrix with one row per vertex and must treat rows independently. `message` and `root` are computed once
    per vertex and sent over the network, so they should be as narrow as the equation allows.

    A *width* is how many numbers a row has. It can differ from a convolution's channels: the output rows of a
    GAT layer are heads * out_channels wide.
    """

    #: Name of the aggregation, or several joined by commas; see `d3gnn.nn.aggregation`.
    aggr: str
    #: Settings of the aggregation `attention`.
    attention: AttentionSpec | None = None
    #: Widths of the rows: of input, output, message and root.
    in_width: int
    out_width: int
    message_width: int
    root_width: int
    #: Whether `message` and `root` both return the input row unchanged; it is then sent only once.
    sends_input: bool = False
    #: Numbers that each edge must have as features, and the numbers that `edge` returns; 0 for none. A number
    #: that an edge lacks is replaced by `edge_default`. Without `edge_message` and attention, `edge_width` is
    #: at most 1: the weight by which the edge's message is multiplied.
    edge_dim: int = 0
    edge_width: int = 0
    edge_default: float = 0.0
    #: Whether messages depend on their destination: the destination's own message is then available too.
    reads_destination: bool = False
    #: Width of the rows that `edge_message` returns.
    edge_message_width: int = 0
    #: Whether edges from a vertex to itself carry no message.
    skips_self_loops: bool = False
    #: Whether `message` and `root` read the vertex's degree: DEGREE_WIDTH more numbers at the end of a row.
    needs_degree: bool = False
    #: The update as matrices, if it is that simple; set by `prepare`. For a few rows, calling torch takes
    #: longer than the arithmetic.
    affine: Affine | None = None
    #: The name of the class, under which the layer is saved.
    type_name: ClassVar[str]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.type_name = cls.__name__
        register(_TYPES, cls.type_name, cls, "layer")

    def message(self, x: Tensor) -> Tensor:
        """What a vertex sends along its out-edges: [n, in_width] -> [n, message_width]."""
        raise NotImplementedError

    def root(self, x: Tensor) -> Tensor:
        """What a vertex keeps for its own update: [n, in_width] -> [n, root_width]."""
        raise NotImplementedError

    def edge(self, features: Tensor) -> Tensor:
        """What an edge contributes to its messages: [n, edge_dim] -> [n, edge_width]."""
        return features

    def edge_message(self, source: Tensor, destination: Tensor, edge: Tensor) -> Tensor:
        """The message of each edge, if it depends on more than its source: [n, edge_message_width].

        `source` and `destination` are `message` of the two ends, `edge` is what `edge` returned. Set
        `edge_message_width`, and `reads_destination` if the destination is used. Such a layer recomputes a
        vertex from all its in-edges when one message changes; the others update it incrementally.
        """
        raise NotImplementedError

    @property
    def makes_edge_messages(self) -> bool:
        """Whether the layer implements `edge_message`."""
        return type(self).edge_message is not Layer.edge_message

    def update(self, root: Tensor, aggregate: Tensor) -> Tensor:
        """The output: [n, root_width], [n, aggregate_width] -> [n, out_width]."""
        raise NotImplementedError

    @property
    def aggregate_width(self) -> int:
        """Width of the aggregated messages."""
        if self.attention is not None:
            return self.attention.heads * (2 + self.attention.channels) + self.edge_width
        width = self.edge_message_width if self.makes_edge_messages else self.message_width
        return len(self.aggr.split(",")) * width

    def prepare(self) -> None:
        """Lay out weights for speed. Called once, before inference; the weights then stay as they are."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        """A static pass over a whole graph: [n, in_width] -> [n, out_width]. See `GNN.forward`."""
        return layer_forward(self, x, edge_index, edge_attr)

    def config(self) -> dict[str, Any]:
        """The constructor's arguments as plain values, read from attributes of the same names.

        Override it if the layer does not keep its arguments as attributes.
        """
        return arguments_of(self)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Layer:
        """The layer with these arguments and new weights."""
        return cls(**from_arguments(config))


def layer_config(layer: Layer) -> dict[str, Any]:
    """The layer's class and arguments as plain values."""
    return {"type": layer.type_name, **layer.config()}


def make_layer(config: dict[str, Any]) -> Layer:
    """The layer that `layer_config` described, with new weights."""
    arguments = dict(config)
    name = arguments.pop("type", None)
    if name not in _TYPES:
        known = ", ".join(sorted(_TYPES))
        raise ValueError(f"unknown layer {name!r}: import the module that defines it; known are {known}")
    return _TYPES[name].from_config(arguments)
