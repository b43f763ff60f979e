"""How long edges and vertices live, by event time."""

from __future__ import annotations

from typing import NamedTuple


class Expiry(NamedTuple):
    """The lifetimes of a schema, in the unit of event times."""

    #: Of an edge whose events name none; `NEVER` for edges that expire only by their own.
    ttl: int
    #: Of a vertex after its last event; None if vertices do not expire.
    vertex_ttl: int | None = None
    #: How far the newest event time may be behind the clock; None if only events move it.
    idle: int | None = None
