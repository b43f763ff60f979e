"""Prefetch what the next events of a batch will read."""

from __future__ import annotations

from d3gnn.kernel.compiled import inlined
from d3gnn.kernel.edge_table import EdgeRecords, home_of
from d3gnn.kernel.operators.encode_events import Events
from d3gnn.kernel.operators.graph_state import APPEND, Graph, Rules, vertex_of
from d3gnn.kernel.partitioners.base import FIRST_REPLICA
from d3gnn.kernel.prefetch import AHEAD, fetch
from d3gnn.types import Ints


@inlined
def look_ahead(k: int, order: Ints, events: Events, rules: Rules, graph: Graph, records: EdgeRecords) -> None:
    """Prefetch what the events after number k will read: ids lead to vertices, and vertices to replicas."""
    last = len(order) - 1
    if last < AHEAD:
        return
    far = order[min(last, k + 3 * AHEAD)]
    fetch(graph.live, events.src[far])
    fetch(graph.live, events.dst[far])
    near = order[min(last, k + 2 * AHEAD)]
    u, v = vertex_of(events.src[near], graph), vertex_of(events.dst[near], graph)
    fetch(graph.placement.vertex, u)
    fetch(graph.placement.vertex, v)
    if rules.mode != APPEND and u >= 0 and v >= 0:
        fetch(records.table, home_of(records, u, v, events.key[near]))
    next = order[min(last, k + AHEAD)]
    u, v = vertex_of(events.src[next], graph), vertex_of(events.dst[next], graph)
    if u >= 0:
        fetch(graph.placement.replica, graph.placement.vertex[u, FIRST_REPLICA] - 1)
    if v >= 0:
        fetch(graph.placement.replica, graph.placement.vertex[v, FIRST_REPLICA] - 1)
    if rules.mode != APPEND and u >= 0 and v >= 0:
        record = records.table[home_of(records, u, v, events.key[next])] - 1
        fetch(records.fields, record)
        fetch(records.key, record)
