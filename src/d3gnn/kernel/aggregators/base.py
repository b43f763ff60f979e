"""What an aggregator is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

import numpy as np

from d3gnn.kernel.adjacency import Side
from d3gnn.kernel.compiled import inlined
from d3gnn.types import Doubles, Floats, Ints, Ints32

_KNOWN: dict[str, type[Aggregator]] = {}
#: How the partials of several parts are joined, number by number; attention has its own way.
SUM, MEAN, MAX, MIN, ATTENTION = range(5)


class Carried(NamedTuple):
    """Edges that carry messages: their ends and slots, with the event time and arrival of what caused it."""

    src: Ints32
    dst: Ints32
    slot: Ints32
    time: Ints
    arrival: Ints


class Arrays(NamedTuple):
    """What an Edge part knows: by vertex slot or, where it says so, by edge slot."""

    values: Floats  # the message of each vertex
    edge_values: Floats  # by edge slot; of width 0 where messages do not depend on edges
    state: Doubles
    counts: Ints32  # of messages


@inlined
def weight_of(edge_values: Floats, slot: int) -> np.float32:
    """By which an edge's message is multiplied: its one value, where edges have any."""
    return edge_values[slot, 0] if edge_values.shape[1] else np.float32(1.0)


class Aggregator(ABC):
    """Joins the messages of a vertex's in-edges, bit by bit and in parts.

    An Edge part keeps, for each destination, a state in float64 and a count of messages. It changes them by
    the methods below, and sends them absolute to the destination's Vertex part, which joins the partials of
    all parts. All methods take many edges at once, work in place, and touch the destinations.
    """

    name: ClassVar[str]
    code: ClassVar[int]
    #: Whether a message can be taken back from the state. If not, a destination for which that fails is put
    #: among the hits, to be recomputed when all is done.
    invertible: ClassVar[bool]

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if "name" in cls.__dict__:
            _KNOWN[cls.name] = cls

    def __init__(self) -> None:
        #: What stands side by side in the state, each as wide as a message.
        self.codes = np.array([self.code], np.int64)

    def state_width(self, message_width: int) -> int:
        """Numbers in a state."""
        return len(self.codes) * message_width

    @abstractmethod
    def add(self, edges: Carried, arrays: Arrays, touched: Ints, hits: Ints) -> None:
        """Take in the messages of new edges."""

    @abstractmethod
    def retract(self, edges: Carried, arrays: Arrays, touched: Ints, hits: Ints) -> None:
        """Take back the messages of removed edges."""

    @abstractmethod
    def replace(
        self, sources: Ints32, fresh: Floats, time: Ints, arrival: Ints, arrays: Arrays, out: Side,
        touched: Ints, hits: Ints,
    ) -> int:  # fmt: skip
        """Give sources new messages, on all their out-edges; how many messages changed."""

    @abstractmethod
    def recompute(self, destinations: Ints32, arrays: Arrays, into: Side) -> None:
        """State and count of destinations from scratch, from their in-edges."""


def aggregator_types() -> list[type[Aggregator]]:
    """All aggregators there are."""
    return [_KNOWN[name] for name in sorted(_KNOWN)]


def aggregator_type(name: str) -> type[Aggregator]:
    """The aggregator of this name."""
    if name not in _KNOWN:
        raise ValueError(f"no aggregator {name!r}; known are {', '.join(sorted(_KNOWN))}")
    return _KNOWN[name]
