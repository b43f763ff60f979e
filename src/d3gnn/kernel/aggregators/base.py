"""What an aggregator is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from d3gnn.kernel.adjacency import Side
from d3gnn.types import Doubles, Floats, Ints, Ints32

_KNOWN: dict[str, Aggregator] = {}


class Aggregator(ABC):
    """Joins the messages of a vertex's in-edges, bit by bit and in parts.

    An Edge part keeps, for each destination, a state in float64 and a count of messages. It changes them by
    the methods below, and sends them absolute to the destination's Vertex part, which joins the partials of
    all parts with `finish`. All methods take many edges at once, work in place, and touch the destinations.
    """

    name: ClassVar[str]
    #: Whether a message can be taken back from the state; if not, a retraction recomputes its destination.
    invertible: ClassVar[bool]
    #: Whether the state is divided by the count of messages at the end.
    divides: ClassVar[bool]

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if "name" in cls.__dict__:
            _KNOWN[cls.name] = cls()

    @abstractmethod
    def add(
        self, src: Ints32, dst: Ints32, time: Ints, arrival: Ints,
        values: Floats, state: Doubles, count: Ints32, touched: Ints,
    ) -> None:  # fmt: skip
        """Take in the messages of new edges."""

    @abstractmethod
    def retract(
        self, src: Ints32, dst: Ints32, time: Ints, arrival: Ints,
        values: Floats, state: Doubles, count: Ints32, touched: Ints,
    ) -> None:  # fmt: skip
        """Take back the messages of removed edges."""

    @abstractmethod
    def replace(
        self, sources: Ints32, fresh: Floats, time: Ints, arrival: Ints,
        values: Floats, out: Side, state: Doubles, touched: Ints,
    ) -> int:  # fmt: skip
        """Give sources new messages, on all their out-edges; how many messages changed."""

    @abstractmethod
    def recompute(
        self, destinations: Ints32, values: Floats, into: Side, state: Doubles, count: Ints32
    ) -> None:
        """State and count of destinations from scratch, from their in-edges."""


def aggregator(name: str) -> Aggregator:
    """The aggregator of this name."""
    if name not in _KNOWN:
        raise ValueError(f"no aggregator {name!r}; known are {', '.join(sorted(_KNOWN))}")
    return _KNOWN[name]


def aggregators() -> list[Aggregator]:
    """All aggregators there are."""
    return [_KNOWN[name] for name in sorted(_KNOWN)]
