"""Compiled steps of lifetimes: when edges and vertices expire, and what prolongs them."""

from __future__ import annotations

from d3gnn.events.duration import NEVER
from d3gnn.events.event import NO_TIME, Element
from d3gnn.kernel.compiled import inlined
from d3gnn.kernel.edge_table import EdgeRecords, U, V
from d3gnn.kernel.expiry_wheel import EXPIRES, NEWER, TTL, get_watermark, link, unlink
from d3gnn.kernel.operators.encode_events import Events
from d3gnn.kernel.operators.graph_state import MULTI, Graph, Rules

# Compiled code reads plain integers.
_VERTEX = int(Element.VERTEX)


@inlined
def expires_at(time: int, ttl: int) -> int:
    """When something with this lifetime expires."""
    return time + ttl if time <= NEVER - ttl else NEVER


@inlined
def has_ttl(i: int, events: Events) -> bool:
    """Whether an event has a lifetime of its own. Of deletes, those that expiry made do."""
    return len(events.ttl) > 0 and events.ttl[i] != NO_TIME


@inlined
def _ttl_of(i: int, events: Events, rules: Rules) -> int:
    return int(events.ttl[i]) if has_ttl(i, events) else rules.ttl


@inlined
def _vertex_ttl_of(i: int, events: Events, rules: Rules) -> int:
    if events.element[i] == _VERTEX and has_ttl(i, events):
        return max(int(events.ttl[i]), rules.vertex_ttl)
    return rules.vertex_ttl


@inlined
def edge_is_late(i: int, events: Events, rules: Rules, records: EdgeRecords) -> bool:
    """Whether the edge that an event creates would have expired already."""
    if rules.ttl == 0 or events.logged:  # a log has only events that were in time
        return False
    return bool(expires_at(events.time[i], _ttl_of(i, events, rules)) < get_watermark(records.wheel))


@inlined
def vertex_is_late(i: int, events: Events, rules: Rules, records: EdgeRecords) -> bool:
    """Whether the vertex that an event creates would have expired already."""
    if rules.vertex_ttl == 0 or events.logged:
        return False
    expires = expires_at(events.time[i], _vertex_ttl_of(i, events, rules))
    return bool(expires < get_watermark(records.wheel))


@inlined
def start_edge(
    i: int, r: int, older: int, events: Events, rules: Rules, graph: Graph, records: EdgeRecords
) -> None:
    """Begin the lifetime of a new edge, whose next older parallel edge is `older` (-1: none)."""
    if rules.ttl == 0:
        return
    ttl = _ttl_of(i, events, rules)
    expires = expires_at(events.time[i], ttl)
    link(records.expiry, records.wheel, r, expires)
    records.expiry[r, TTL] = ttl
    if older >= 0:
        records.expiry[r, NEWER] = records.expiry[older, NEWER]  # the oldest one
        records.expiry[older, NEWER] = r + 1
    else:
        records.expiry[r, NEWER] = -(r + 1)
    _prolong_ends(i, r, expires, events, rules, graph, records)


@inlined
def prolong_edge(i: int, r: int, events: Events, rules: Rules, graph: Graph, records: EdgeRecords) -> bool:
    """Prolong an edge by one of its events; whether that changes anything."""
    if rules.ttl == 0:
        return False
    expires = expires_at(events.time[i], records.expiry[r, TTL])
    if expires <= records.expiry[r, EXPIRES]:
        return False
    records.expiry[r, EXPIRES] = expires
    _prolong_ends(i, r, expires, events, rules, graph, records)
    return True


@inlined
def _prolong_ends(
    i: int, r: int, expires: int, events: Events, rules: Rules, graph: Graph, records: EdgeRecords
) -> None:
    """Both ends live as long as the edge, and as long as after an event of their own."""
    if rules.vertex_ttl > 0:
        until = max(expires, expires_at(events.time[i], rules.vertex_ttl))
        for end in (U, V):
            v = records.fields[r, end]
            graph.vertex_expiry[v, EXPIRES] = max(graph.vertex_expiry[v, EXPIRES], until)


@inlined
def end_edge(r: int, rules: Rules, records: EdgeRecords) -> None:
    """End the lifetime of an edge that is deleted."""
    if rules.ttl > 0:
        unlink(records.expiry, records.wheel, r)


@inlined
def expired_copy(i: int, newest: int, events: Events, rules: Rules, records: EdgeRecords) -> int:
    """Of parallel edges, the one that a delete made by expiry is for: it expires at the time of the event.

    -1 if there is none. The search begins at the oldest one, which it usually is.
    """
    if rules.mode != MULTI:
        return newest
    r = -int(records.expiry[newest, NEWER]) - 1
    while r >= 0 and records.expiry[r, EXPIRES] != events.time[i]:
        r = int(records.expiry[r, NEWER]) - 1
    return r


@inlined
def start_vertex(v: int, i: int, code: int, events: Events, rules: Rules, graph: Graph) -> None:
    """Begin the lifetime of a new vertex; a label that came before it counts as one of its events."""
    if rules.vertex_ttl > 0:
        expires = expires_at(events.time[i], _vertex_ttl_of(i, events, rules))
        if graph.label_state[code] != 0:
            expires = max(expires, expires_at(graph.label_time[code], rules.vertex_ttl))
        link(graph.vertex_expiry, graph.vertex_wheel, v, expires)


@inlined
def prolong_vertex(v: int, i: int, events: Events, rules: Rules, graph: Graph) -> bool:
    """Prolong a vertex by one of its own events; whether that changes anything."""
    if rules.vertex_ttl == 0:
        return False
    expires = expires_at(events.time[i], _vertex_ttl_of(i, events, rules))
    if expires <= graph.vertex_expiry[v, EXPIRES]:
        return False
    graph.vertex_expiry[v, EXPIRES] = expires
    return True


@inlined
def end_vertex(v: int, rules: Rules, graph: Graph) -> None:
    """End the lifetime of a vertex that is deleted."""
    if rules.vertex_ttl > 0:
        unlink(graph.vertex_expiry, graph.vertex_wheel, v)
