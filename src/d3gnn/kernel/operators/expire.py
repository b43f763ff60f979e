"""Expiry: at the end of a batch, Partition deletes what has expired, and logs the deletes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from d3gnn.events import Element, EventBatch, Op, Reason
from d3gnn.events.duration import NEVER
from d3gnn.events.expiry import Expiry
from d3gnn.events.keys import Keys, null_keys
from d3gnn.kernel.compiled import lean
from d3gnn.kernel.edge_table import (
    ADDED,
    LOAD,
    PART,
    EdgeRecords,
    U,
    V,
    detach,
    free_record,
    home_of,
    place_of,
)
from d3gnn.kernel.expiry_wheel import (
    advance_watermark,
    list_expired,
    next_expiry,
    take_expired,
    watermark_of,
)
from d3gnn.kernel.log import LogEntry
from d3gnn.kernel.operators.apply_events import delete_vertex, remove_edge
from d3gnn.kernel.operators.decisions import N_ADDS, DecisionRows, named, with_room
from d3gnn.kernel.operators.encode_events import EventEncoder, Events
from d3gnn.kernel.operators.graph_state import Graph, GraphState, Plain
from d3gnn.kernel.partitioners.base import CODE, Placement
from d3gnn.kernel.prefetch import AHEAD, fetch
from d3gnn.types import Ints, Ints32, Small


class Expired(NamedTuple):
    """A batch with the deletes of what expired behind its events."""

    events: Events
    arrival: Ints
    decisions: DecisionRows
    #: The deletes, for the log: those of edges in the order of their times, then those of vertices.
    entry: LogEntry


class Expirer:
    """Deletes what has expired. Its clock, the watermark, is the newest time of an applied event."""

    def __init__(self, expiry: Expiry, state: GraphState, encoder: EventEncoder) -> None:
        self._expiry, self._state, self._encoder = expiry, state, encoder

    @property
    def watermark(self) -> int:
        """The newest event time so far."""
        return watermark_of(self._state.edge_wheel())

    @watermark.setter
    def watermark(self, time: int) -> None:
        advance_watermark(self._state.edge_wheel(), time)

    def next_expiry(self) -> int:
        """A time of the clock before which nothing expires by it; `NEVER` if nothing ever does."""
        idle, state = self._expiry.idle, self._state
        if idle is None:
            return NEVER
        soonest = next_expiry(state.edge_wheel())
        if self._expiry.vertex_ttl is not None:
            soonest = min(soonest, next_expiry(state.views().vertex_wheel))
        return min(soonest, NEVER - idle - 1) + idle + 1

    def expire(
        self, time: Ints, status: Small, clock: int, events: Events, arrival: Ints, decisions: DecisionRows,
        first_vertex: int,
    ) -> Expired | None:  # fmt: skip
        """Delete what has expired after these events, which were just applied; None if nothing has."""
        state, before = self._state, self.watermark
        newest = int(time[status == Reason.APPLIED].max(initial=before))
        if self._expiry.idle is not None:
            newest = max(newest, clock - self._expiry.idle)
        if newest == before:
            return None
        self.watermark = newest
        records, graph = state.edges.views(), state.views()
        edges, edge_times = _take(records.expiry, records.wheel, newest)
        vertices, vertex_times = edges[:0], edge_times[:0]
        if self._expiry.vertex_ttl is not None:
            vertices, vertex_times = _take(graph.vertex_expiry, graph.vertex_wheel, newest)
        if not len(edges) and not len(vertices):
            return None
        n, more = len(time), len(edges) + len(vertices)
        longer = with_room(decisions, n + more)
        src, dst = np.empty((2, len(edges)), np.int32)
        key = np.empty(len(edges), np.int64)
        plain_graph, placement = state.plain_views()
        deleted = np.empty(len(edges), np.int64)
        found = _remove_edges(
            edges, n, plain_graph, placement, tuple(records), *longer, src, dst, key, edge_times, deleted
        )
        codes = np.empty(len(vertices), np.int32)
        _delete_vertices(vertices, n + found, first_vertex, plain_graph, placement, *longer, codes)
        deletes = self._deletes(Element.EDGE, src[:found], dst[:found], key[:found], deleted[:found])
        if len(codes):
            of_vertices = self._deletes(Element.VERTEX, codes, None, None, vertex_times)
            deletes = EventBatch.concat([deletes, of_vertices]) if found else of_vertices
        clocks = np.full(len(deletes), clock)
        return Expired(
            events._replace(time=np.concatenate([events.time, deletes.time])),
            np.concatenate([arrival, clocks]),
            longer,
            LogEntry(deletes, np.full(len(deletes), -1, np.int32), clocks),
        )

    def _deletes(
        self, element: Element, src: Ints32, dst: Ints32 | None, key: Ints | None, time: Ints
    ) -> EventBatch:
        n, ids = len(time), self._state.ids.keys
        keys: Keys | None = None if key is None else self._encoder.edge_keys(key)
        return EventBatch(
            op=np.full(n, Op.DELETE, np.int8),
            element=np.full(n, element, np.int8),
            src=ids.take(src),
            dst=None if dst is None else ids.take(dst),
            key=keys,
            time=time,
            ttl=np.zeros(n, np.int64),
        )


def with_deletes(entry: LogEntry, deletes: LogEntry) -> LogEntry:
    """A log entry and the deletes that expiry adds to it."""
    if not len(entry):
        return deletes
    events = entry.events
    columns: dict[str, Any] = {}
    for name in ("dst", "key"):
        here, there = getattr(events, name), getattr(deletes.events, name)
        if here is not None and there is not None and type(here) is not type(there):
            columns[name] = null_keys(type(there), len(events))  # it belonged to dead letters only
    if columns:
        entry = LogEntry(replace(events, **columns), entry.part, entry.arrival)
    return LogEntry.concat([entry, deletes])


def _take(rows: Ints, wheel: Ints, time: int) -> tuple[Ints32, Ints]:
    """Take what expires before this time out of a wheel: the rows, and their times, in order."""
    first, count = take_expired(rows, wheel, time)
    found, expires = np.empty(count, np.int32), np.empty(count, np.int64)
    if count:
        list_expired(rows, first, found, expires)
        if (expires[1:] < expires[:-1]).any():
            order = np.argsort(expires, kind="stable")
            found, expires = found[order], expires[order]
    return found, expires


@lean
def _remove_edges(
    edges: Ints32, first: int, graph: Plain, placement: Plain, records: Plain, counts: Ints, rows: Ints32,
    src: Ints32, dst: Ints32, key: Ints, time: Ints, out_time: Ints,
) -> int:  # fmt: skip
    """Delete edges that are no longer in the wheel; returns how many. Their events begin at number `first`.

    Edges of vertices that were deleted before are gone already: only their records are left to be freed.
    """
    g = Graph(*graph, Placement(*placement))  # type: ignore[call-arg]  # graph is one shorter
    table, out = EdgeRecords(*records), named(counts, rows)
    for a in range(out.counts[N_ADDS]):
        if out.adds.record[a] >= 0:
            table.fields[out.adds.record[a], ADDED] = a + 1
    found = 0
    last = len(edges) - 1
    for i in range(len(edges)):
        far, near = edges[min(last, i + 3 * AHEAD)], edges[min(last, i + 2 * AHEAD)]
        fetch(table.fields, far)
        fetch(table.key, far)
        u, v = table.fields[near, U], table.fields[near, V]
        fetch(table.table, home_of(table, u, v, table.key[near]))
        fetch(g.placement.vertex, u)
        fetch(g.placement.vertex, v)
        next = edges[min(last, i + AHEAD)]
        fetch(g.live, g.placement.vertex[table.fields[next, U], CODE])
        fetch(g.live, g.placement.vertex[table.fields[next, V], CODE])
        r = edges[i]
        u, v = table.fields[r, U], table.fields[r, V]
        from_code, to_code = g.placement.vertex[u, CODE], g.placement.vertex[v, CODE]
        at = place_of(table, u, v, table.key[r])
        if g.live[from_code] - 1 != u or g.live[to_code] - 1 != v:
            detach(table, at, r)
            g.parts[LOAD, table.fields[r, PART]] -= 1
            free_record(table, r, g.parts)
            continue
        src[found], dst[found], key[found], out_time[found] = from_code, to_code, table.key[r], time[i]
        remove_edge(first + found, at, r, g, table, out)
        found += 1
    for a in range(out.counts[N_ADDS]):
        if out.adds.record[a] >= 0:
            table.fields[out.adds.record[a], ADDED] = 0
    return found


@lean
def _delete_vertices(
    vertices: Ints32, first: int, first_vertex: int, graph: Plain, placement: Plain, counts: Ints,
    rows: Ints32, codes: Ints32,
) -> None:  # fmt: skip
    """Delete vertices that are no longer in the wheel, and have no edges."""
    g = Graph(*graph, Placement(*placement))  # type: ignore[call-arg]  # graph is one shorter
    out = named(counts, rows)
    for i in range(len(vertices)):
        v = vertices[i]
        codes[i] = g.placement.vertex[v, CODE]
        delete_vertex(v, codes[i], first + i, g, out, first_vertex)
