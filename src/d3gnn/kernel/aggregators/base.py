"""What an aggregator is: how the messages along the in-edges of a vertex become one value."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

import numpy as np

from d3gnn.kernel.adjacency import Side
from d3gnn.kernel.compiled import inlined
from d3gnn.nn.aggregation import register_aggregation
from d3gnn.nn.layer import Layer
from d3gnn.registry import register
from d3gnn.types import Doubles, Floats, Ints, Ints32

_KNOWN: dict[str, type[Aggregator]] = {}
_NO_PARAMS = np.zeros(0, np.int64)


class Messages(NamedTuple):
    """Edges that carry messages: their ends and slots, with the event time and arrival of the cause."""

    src: Ints32
    dst: Ints32
    slot: Ints32
    time: Ints
    arrival: Ints


class EdgeArrays(NamedTuple):
    """The arrays of an Edge part, by vertex slot unless stated otherwise."""

    values: Floats  # the message of each vertex
    edge_values: Floats  # by edge slot; of width 0 where messages do not depend on edges
    state: Doubles
    counts: Ints32  # of messages
    bounds: Doubles  # on what each state has taken in, and on each message (see `cancellation`)


@inlined
def weight_of(edge_values: Floats, slot: int) -> np.float32:
    """The factor of an edge's message: the edge's one value, or 1 where edges have none."""
    return edge_values[slot, 0] if edge_values.shape[1] else np.float32(1.0)


class Aggregator(ABC):
    """Aggregates the messages of each destination incrementally, in partial aggregates of several parts.

    An Edge part keeps a state in float64 and a count of messages for each destination. `add`, `retract`,
    `replace` and `recompute` change them: each takes many edges at once, works in place, and adds the
    destinations to the `touched` set. The state travels, as a float32 row, to the destination's master, which
    combines the partials of all parts with the compiled steps `merge` and `finish`.

    A subclass with a `name` is registered under it, and layers can name it. A new one also defines
    `aggregate`, the same in plain torch for static passes (see `d3gnn.nn.aggregation`).
    """

    name: ClassVar[str]
    #: Whether a message can be taken out of the state again. If not, destinations for which that fails are
    #: added to the `invalidated` set, and recomputed at the end of the batch.
    invertible: ClassVar[bool]
    #: Compiled with `inlined`: `merge(is_first, partial, total, params)` merges a partial into the total.
    merge: ClassVar[Any]
    #: Compiled with `inlined`: `finish(count, total, params, aggregate)` turns the total of `count` messages
    #: into the aggregate that the layer's update takes. With a count of 0, the total is all zero.
    finish: ClassVar[Any]
    #: A static method on (messages, destinations, number of vertices); None for those that
    #: `d3gnn.nn.aggregation` has.
    aggregate: ClassVar[Any] = None
    #: Whether weights may be applied before messages are aggregated instead of after.
    linear: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if "name" in cls.__dict__:
            cls.register()

    @classmethod
    def register(cls) -> None:
        """Register the class under its name, which defining it does already."""
        register(_KNOWN, cls.name, cls, "aggregator")
        if cls.aggregate is not None:
            register_aggregation(cls.name, cls.aggregate, linear=cls.linear)

    @classmethod
    def of(cls, layer: Layer) -> Aggregator:
        """The aggregator of a layer that names this one."""
        return cls()

    @property
    def params(self) -> Ints:
        """Integers for `merge` and `finish`."""
        return _NO_PARAMS

    @property
    def steps(self) -> dict[str, Any]:
        """What specialises the compiled loops at masters."""
        return {"merge": type(self).merge, "finish": type(self).finish}

    @property
    def steps_name(self) -> str:
        """Tells the specialised loops of aggregators apart."""
        return type(self).__name__

    def state_width(self, message_width: int) -> int:
        """Numbers in a state."""
        return message_width

    def sums(self, state_width: int) -> tuple[int, int]:
        """The range of numbers in a state that must not be dwarfed by its bound (see `cancellation`)."""
        return 0, state_width

    @abstractmethod
    def add(self, edges: Messages, arrays: EdgeArrays, touched: Ints, invalidated: Ints) -> None:
        """Add the messages of new edges."""

    @abstractmethod
    def retract(self, edges: Messages, arrays: EdgeArrays, touched: Ints, invalidated: Ints) -> None:
        """Take out the messages of removed edges."""

    @abstractmethod
    def replace(
        self, sources: Ints32, fresh: Floats, time: Ints, arrival: Ints, arrays: EdgeArrays, out: Side,
        touched: Ints, invalidated: Ints,
    ) -> int:  # fmt: skip
        """Replace the messages of sources on all their out-edges; returns how many messages changed."""

    @abstractmethod
    def recompute(self, destinations: Ints32, arrays: EdgeArrays, into: Side) -> None:
        """Compute state and count of destinations from scratch, from their in-edges."""


def aggregator_types() -> list[type[Aggregator]]:
    """All registered aggregators."""
    return [_KNOWN[name] for name in sorted(_KNOWN)]


def aggregator_type(name: str) -> type[Aggregator]:
    """The aggregator registered under a name."""
    if name not in _KNOWN:
        raise ValueError(f"unknown aggregator {name!r}: choose one of {', '.join(sorted(_KNOWN))}")
    return _KNOWN[name]
