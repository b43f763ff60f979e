"""When edges and vertices expire, by event time: kept in dictionaries, and searched from end to end."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from d3gnn.events.duration import NEVER
from d3gnn.events.expiry import Expiry

_Edge = TypeVar("_Edge", bound=Hashable)
_Vertex = TypeVar("_Vertex", bound=Hashable)


class Lifetimes(Generic[_Edge, _Vertex]):
    """The lifetimes of all copies of all edges, and of all vertices; with `frozen`, time stands still."""

    def __init__(self, expiry: Expiry | None, frozen: bool = False) -> None:
        self._expiry, self._frozen = expiry, frozen
        self._newest: int | None = None
        #: Of each copy of an edge, from the oldest: when it expires, and its lifetime.
        self._edges: dict[_Edge, list[tuple[int, int]]] = {}
        self._vertices: dict[_Vertex, int] = {}

    def has_passed(self, time: int) -> bool:
        """Whether the newest event time is later."""
        return self._newest is not None and time < self._newest

    def advance(self, time: int) -> None:
        """Take the time of an applied event into account."""
        if not self._frozen:
            self._newest = time if self._newest is None else max(time, self._newest)

    def tick(self, clock: int | None) -> None:
        """Take the clock into account, for an idle stream."""
        if self._expiry is not None and self._expiry.idle is not None and clock is not None:
            self.advance(clock - self._expiry.idle)

    def edge_end(self, time: int, ttl: int | None) -> int:
        """When an edge expires that is created now; with a lifetime of its own, if it has one."""
        return NEVER if self._expiry is None else min(time + (ttl or self._expiry.ttl), NEVER)

    def vertex_end(self, time: int, ttl: int | None = None) -> int:
        """When a vertex expires whose last event is this one."""
        if self._expiry is None or self._expiry.vertex_ttl is None:
            return NEVER
        return min(time + max(self._expiry.vertex_ttl, ttl or 0), NEVER)

    def add_edge(self, edge: _Edge, time: int, ttl: int | None) -> None:
        """A new copy."""
        lifetime = ttl or (self._expiry.ttl if self._expiry else NEVER)
        self._edges.setdefault(edge, []).append((self.edge_end(time, ttl), lifetime))

    def prolong_edge(self, edge: _Edge, time: int) -> bool:
        """An event of the newest copy; whether it lives longer now."""
        end, lifetime = self._edges[edge][-1]
        later = min(time + lifetime, NEVER)
        if self._expiry is None or later <= end:
            return False
        self._edges[edge][-1] = later, lifetime
        return True

    def remove_edge(self, edge: _Edge, copy: int) -> None:
        """A copy is gone."""
        del self._edges[edge][copy]
        if not self._edges[edge]:
            del self._edges[edge]

    def copy_that_ends(self, edge: _Edge, time: int) -> int | None:
        """The oldest copy that expires at this time."""
        return next((copy for copy, (end, _) in enumerate(self._edges[edge]) if end == time), None)

    def prolong_vertex(self, id: _Vertex, end: int) -> bool:
        """A vertex lives until then, if not longer; whether that changes anything."""
        if self._expiry is None or self._expiry.vertex_ttl is None or end <= self._vertices.get(id, end - 1):
            return False
        self._vertices[id] = end
        return True

    def newest_edge_end(self, edge: _Edge) -> int:
        """When the newest copy expires."""
        return self._edges[edge][-1][0]

    def remove_vertex(self, id: _Vertex) -> None:
        """A vertex is gone."""
        self._vertices.pop(id, None)

    def expired_edges(self) -> list[tuple[_Edge, int]]:
        """The copies that have expired; of one edge, the newest first."""
        ends = [
            (edge, copy, end) for edge, copies in self._edges.items() for copy, (end, _) in enumerate(copies)
        ]
        return [(edge, copy) for edge, copy, end in reversed(ends) if self.has_passed(end)]

    def expired_vertices(self) -> list[_Vertex]:
        """The vertices that have expired."""
        return [id for id, end in self._vertices.items() if self.has_passed(end)]
