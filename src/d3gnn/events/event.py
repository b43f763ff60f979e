"""One event: what happens, to which element, with which value, and when."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from d3gnn.events.keys import Key

#: Stands for a null in columns of times, partitions and offsets.
NO_TIME = int(np.iinfo(np.int64).min)
#: The feature that an event sets where it names none.
DEFAULT_FEATURE = "x"

#: Event time: an integer, or a datetime, which becomes microseconds since 1970. A naive datetime is in UTC.
Time = int | datetime

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Op(IntEnum):
    """What an event does to its element."""

    CREATE = 0
    UPDATE = 1
    DELETE = 2


class Element(IntEnum):
    """What an event is about."""

    VERTEX = 0
    EDGE = 1
    FEATURE = 2
    EDGE_FEATURE = 3
    LABEL = 4
    #: Changes nothing: asks for the score of a pair of vertices.
    QUERY = 5


class Event(NamedTuple):
    """One change of the graph, or one query.

    A vertex, its features and its label are identified by `src`; an edge and its features by `src`, `dst`
    and, in a keyed multigraph, `key`. A query asks for the score of the pair `src`, `dst`.

    `time` and `arrival` are microseconds since 1970, any other integers that order the events, or datetimes.
    `ttl` is the lifetime of an edge that expires earlier or later than others, in the unit of `time`.
    `neighbours` of a new vertex are short for edges from it, which follow it: a vertex stream.

    >>> Event("create", "edge", "ann", "bob", time=1)
    create edge ann -> bob at 1
    """

    op: str
    element: str
    src: Key | None
    dst: Key | None = None
    key: Key | None = None
    feature: str | None = None
    value: Sequence[float] | None = None
    time: Time | None = 0
    arrival: Time | None = None
    partition: int | None = None
    offset: int | None = None
    ttl: int | None = None
    neighbours: Sequence[Key] | None = None

    def __repr__(self) -> str:
        text = f"{self.op} {self.element} {self.src}"
        text += f" -> {self.dst}" if self.dst is not None else ""
        text += f" #{self.key}" if self.key is not None else ""
        if self.value is not None:
            text += f" {self.feature or DEFAULT_FEATURE}={list(self.value)}"
        if self.neighbours:
            text += f" -> {', '.join(map(str, self.neighbours))}"
        return f"{text} at {self.time}"


def microseconds(time: Time) -> int:
    """Microseconds since 1970 of a datetime (naive: UTC); an integer stays as it is.

    >>> microseconds(datetime(1970, 1, 1, 0, 0, 2)), microseconds(7)
    (2000000, 7)
    """
    if not isinstance(time, datetime):
        return time
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return (time - _EPOCH) // _MICROSECOND
