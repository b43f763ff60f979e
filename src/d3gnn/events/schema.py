"""What a graph looks like: its kind of edges and the features that its vertices and edges have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal, get_args

from d3gnn.events.batch import DEFAULT_FEATURE

#: Events name their feature by an 8-bit number once they are checked.
_MOST_FEATURES = 127

EdgeMode = Literal["simple", "multi", "keyed", "append"]


@dataclass(frozen=True)
class GraphSchema:
    """The graph that the events describe; checked when made.

    edges:
        `simple`: one edge from u to v at most; creating it again is a repeat that changes nothing.
        `multi`: every create adds a parallel copy; a delete removes the newest copy.
        `keyed`: parallel edges told apart by the event's `key`; the same (u, v, key) again is a repeat.
        `append`: parallel copies, and no edge is ever deleted on its own: no edge table is kept.
    directed:
        An undirected edge carries messages both ways, and (u, v) and (v, u) name the same edge.
    features, edge_features:
        Widths by name. The input of the model is its vertex features side by side, in this order.
    label_width:
        How many numbers a label has.

    >>> GraphSchema(features={"x": 8, "risk": 1}).width
    9
    """

    edges: EdgeMode = "simple"
    directed: bool = True
    features: Mapping[str, int] = field(default_factory=dict)
    edge_features: Mapping[str, int] = field(default_factory=dict)
    label_width: int = 1

    def __post_init__(self) -> None:
        if self.edges not in get_args(EdgeMode):
            raise ValueError(f"edges={self.edges!r}: choose one of {', '.join(get_args(EdgeMode))}")
        for which in ("features", "edge_features"):
            widths = dict(getattr(self, which))
            if len(widths) > _MOST_FEATURES:
                raise ValueError(f"{which}: {len(widths)} are declared, at most {_MOST_FEATURES}, please")
            for name, width in widths.items():
                if not name or not isinstance(width, int) or width < 1:
                    raise ValueError(f"{which}[{name!r}]={width!r}: a name and a width of at least 1, please")
            object.__setattr__(self, which, MappingProxyType(widths))
        if self.edges == "append" and self.edge_features:
            raise ValueError("edges='append' keeps no edge table, so its edges cannot have features")
        if self.label_width < 1:
            raise ValueError(f"label_width={self.label_width}: at least 1, please")

    @property
    def width(self) -> int:
        """Width of a vertex's input, all features side by side."""
        return sum(self.features.values())

    def for_model(self, in_width: int, edge_in: int = 0) -> GraphSchema:
        """This schema with one feature `x` as wide as the model's input, where none is declared.

        `edge_in` is how many numbers the model takes of each edge: its features must have as many together.
        """
        on_edges = sum(self.edge_features.values())
        if edge_in and on_edges != edge_in:
            raise ValueError(
                f"the model takes {edge_in} numbers of each edge, but the schema's edge features have "
                f"{on_edges} together: declare them, as in GraphSchema(edge_features={{'w': {edge_in}}})"
            )
        if not self.features:
            return replace(self, features={DEFAULT_FEATURE: in_width})
        if self.width != in_width:
            widths = ", ".join(f"{name} ({width})" for name, width in self.features.items())
            raise ValueError(
                f"the model takes {in_width} inputs, but the schema's vertex features are {self.width} wide "
                f"together: {widths}. Declare features whose widths add up to {in_width}."
            )
        return self

    def __eq__(self, other: object) -> bool:
        # The order of features counts, as it is that of the model's input.
        return isinstance(other, GraphSchema) and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash(self._parts())

    def _parts(self) -> tuple[Any, ...]:
        return tuple(tuple(v.items()) if isinstance(v, Mapping) else v for v in vars(self).values())

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; `GraphSchema(**d)` makes it again."""
        return {k: dict(v) if isinstance(v, Mapping) else v for k, v in vars(self).items()}

    def __reduce__(self) -> Any:
        return _from_dict, (self.to_dict(),)


def _from_dict(plain: dict[str, Any]) -> GraphSchema:
    return GraphSchema(**plain)
