"""New edges on several threads; those that share a vertex one at a time, as in section 4.4 of the paper.

Each thread takes the next few edges of a batch, locks the two ends of each, and does what `apply_events` does
for an edge. What is numbered (vertices, replicas, rows, slots) has atomic counters. Which thread comes first
decides some parts, so the log records them. Edges get their slots afterwards, in order.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from d3gnn.events import Reason
from d3gnn.kernel.atomics import LOCKS, fetch_add, lock_both, swap_if, unlock_both
from d3gnn.kernel.compiled import inlined, lean, specialised
from d3gnn.kernel.edge_table import (
    ADDED,
    COUNT,
    FREE_EDGE,
    MASK,
    NEXT_EDGE,
    NEXT_ROW,
    NEXT_SLOT,
    OLDER,
    PART,
    SLOT,
    USED,
    EdgeRecords,
    U,
    V,
    home_of,
    place_of,
)
from d3gnn.kernel.operators.decisions import (
    N_ADDS,
    N_LABELS,
    N_REPLICAS,
    N_SOURCES,
    N_VERTICES,
    NO_RECORD,
    DecisionRows,
    Decisions,
    named,
)
from d3gnn.kernel.operators.encode_events import Events
from d3gnn.kernel.operators.graph_state import APPEND, MULTI, PRESENT, Graph, Plain, Rules
from d3gnn.kernel.operators.look_ahead import look_ahead
from d3gnn.kernel.operators.vertex_deletes import is_late
from d3gnn.kernel.partitioners import Partitioner
from d3gnn.kernel.partitioners.base import (
    CODE,
    DEGREE,
    FIRST_REPLICA,
    IS_SOURCE,
    LACKING_COUNT,
    LIVE_COUNT,
    MASTER_PART,
    MASTER_ROW,
    NEXT_REPLICA,
    REPLICA_COUNT,
    REPLICA_PART,
    REPLICA_SLOT,
    VERTEX_COUNT,
    Placement,
    choose,
)
from d3gnn.types import Doubles, Ints, Ints32, Small

#: Fewer events than this are applied on one thread.
SMALLEST = 8192
#: Edges that a thread takes at a time. It learns the loads that other threads have caused once for these.
_TAKEN = 64
_APPLIED, _REPEATED, _LATE = int(Reason.APPLIED), int(Reason.REPEATED), int(Reason.LATE)
#: A new record that has no slot yet; before that, the slot of an event that added no edge.
_NO_SLOT, _NO_EDGE = -1, -2
_COUNTERS = Graph._fields.index("counters")


class EdgesOnThreads:
    """Applies batches that only create edges, without values or lifetimes."""

    def __init__(self, partitioner: Partitioner, parts: int, threads: int) -> None:
        self.threads = threads
        self._apply = specialised(_apply_some, partitioner.name, choose=partitioner.choose)
        self._locks = np.zeros(LOCKS, np.int64)
        self._scratch = [(np.zeros(parts, np.int64), np.zeros((2, parts))) for _ in range(threads)]
        self._pool: ThreadPoolExecutor | None = None

    def apply(
        self, order: Ints, events: Plain, rules: Plain, graph: Plain, placement: Plain, records: Plain,
        decisions: DecisionRows, status: Small,
    ) -> bool:  # fmt: skip
        """Apply the events in about this order, as `apply_events` does; returns whether all were applied."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.threads - 1, "d3gnn-partition")
        arguments = (order, events, rules, graph, placement, records, *decisions, status)
        counters = graph[_COUNTERS]
        first = np.array([counters[VERTEX_COUNT], counters[REPLICA_COUNT], 0])
        shared = (first, self._locks)
        others = [self._pool.submit(self._apply, *arguments, *shared, *each) for each in self._scratch[1:]]
        try:
            self._apply(*arguments, *shared, *self._scratch[0])
        finally:
            for other in others:
                other.result()
        return _number(order, events, rules, graph, placement, records, *decisions, status, first)


@lean
def _apply_some(
    order: Ints, events: Plain, rules: Plain, graph: Plain, placement: Plain, records: Plain, counts: Ints,
    rows: Ints32, status: Small, shared: Ints, locks: Ints, load: Ints, scratch: Doubles,
) -> None:  # fmt: skip
    """What one thread does: take some events, until there are none.

    `shared` has the first new vertex and replica, and the number of events that are taken.
    """
    own = Placement(*placement)
    named_graph = Graph(*graph, Placement(
        own.vertex, own.replica, load, own.masters, own.totals, own.planned, scratch[0]
    ))  # type: ignore[call-arg]  # graph is one shorter  # fmt: skip
    _take_events(
        order, Events(*events), Rules(*rules), named_graph, EdgeRecords(*records), named(counts, rows),
        status, shared, locks, own.load, scratch[1],
    )  # fmt: skip


@inlined
def _take_events(
    order: Ints, events: Events, rules: Rules, graph: Graph, records: EdgeRecords, out: Decisions,
    status: Small, shared: Ints, locks: Ints, load: Ints, before: Doubles,
) -> None:  # fmt: skip
    own_load = graph.placement.load
    while True:
        begin = fetch_add(shared, 2, _TAKEN)
        if begin >= len(order):
            return
        for p in range(len(load)):
            own_load[p] = load[p]
            before[p] = own_load[p]
        for k in range(begin, min(begin + _TAKEN, len(order))):
            look_ahead(k, order, events, rules, graph, records)
            i = order[k]
            out.adds.slot[k] = _NO_EDGE
            if status[i] != 0:
                continue
            a, b = events.src[i], events.dst[i]
            if not rules.directed and a > b:
                a, b = b, a
            lock_both(locks, a, b)
            status[i] = _edge(k, i, a, b, events, rules, graph, records, out, shared)
            unlock_both(locks, a, b)
        for p in range(len(load)):
            more = own_load[p] - np.int64(before[p])
            if more != 0:
                fetch_add(load, p, more)


@inlined
def _edge(
    k: int, i: int, a: int, b: int, events: Events, rules: Rules, graph: Graph, records: EdgeRecords,
    out: Decisions, shared: Ints,
) -> int:  # fmt: skip
    """Create an edge, both of whose ends are locked."""
    u, v = graph.live[a] - 1, graph.live[b] - 1
    new_u, new_v = u < 0, v < 0
    older = -1
    if rules.mode != APPEND and not new_u and not new_v:
        older = int(records.table[place_of(records, u, v, events.key[i])]) - 1
    if is_late(i, a, events, rules, graph) or is_late(i, b, events, rules, graph):
        return _LATE
    if older >= 0 and rules.mode != MULTI:
        return _REPEATED
    if new_u:
        u = _new_vertex(a, i, graph, out, shared)
    if new_v:
        v = u if a == b else _new_vertex(b, i, graph, out, shared)
        new_v = a != b
    vertex = graph.placement.vertex
    part = int(np.int64(choose(u, v, graph.hashes[a], graph.hashes[b], graph.placement, rules.settings)))
    if new_u:
        _place_master(u, part, graph, out, shared)
    if new_v:
        _place_master(v, part, graph, out, shared)
    vertex[u, DEGREE] += 1
    vertex[v, DEGREE] += 1
    graph.placement.load[part] += 1
    u_replica, v_replica = _replica_of(u, part, graph, out, shared), _replica_of(v, part, graph, out, shared)
    _make_source(u_replica, u, graph, out)
    if rules.destinations or not rules.directed:
        _make_source(v_replica, v, graph, out)
    adds = out.adds
    adds.record[k], adds.slot[k] = NO_RECORD, _NO_SLOT
    if rules.mode != APPEND:
        adds.record[k] = _new_record(u, v, part, older, events.key[i], graph, records)
        adds.slot[k] = records.fields[adds.record[k], SLOT]
    adds.part[k], adds.u[k], adds.v[k] = part, u, v
    adds.u_replica[k], adds.v_replica[k], adds.event[k] = u_replica, v_replica, i
    return _APPLIED


@inlined
def _new_vertex(code: int, i: int, graph: Graph, out: Decisions, shared: Ints) -> int:
    v = fetch_add(graph.counters, VERTEX_COUNT, 1)
    vertex = graph.placement.vertex
    vertex[v, CODE], vertex[v, FIRST_REPLICA], vertex[v, DEGREE] = code, 0, 0
    for f in range(graph.feature_known.shape[1]):
        graph.feature_known[v, f] = 0
    graph.live[code] = v + 1
    out.vertices.event[v - shared[0]] = i
    if graph.label_state[code] == PRESENT:  # parked until now
        n = fetch_add(out.counts, N_LABELS, 1)
        out.labels.vertex[n], out.labels.event[n] = v, i
    return v


@inlined
def _place_master(v: int, part: int, graph: Graph, out: Decisions, shared: Ints) -> None:
    graph.placement.vertex[v, MASTER_PART] = part
    graph.placement.vertex[v, MASTER_ROW] = fetch_add(graph.parts[NEXT_ROW], part, 1)
    graph.placement.replica[_replica_of(v, part, graph, out, shared), IS_SOURCE] = 1


@inlined
def _replica_of(v: int, part: int, graph: Graph, out: Decisions, shared: Ints) -> int:
    """The replica of a locked vertex in a part; created if there is none."""
    vertex, replica = graph.placement.vertex, graph.placement.replica
    at = int(np.int64(vertex[v, FIRST_REPLICA])) - 1
    while at >= 0:
        if replica[at, REPLICA_PART] == part:
            return at
        at = int(np.int64(replica[at, NEXT_REPLICA])) - 1
    at = fetch_add(graph.counters, REPLICA_COUNT, 1)
    replica[at, REPLICA_PART], replica[at, IS_SOURCE] = part, 0
    replica[at, REPLICA_SLOT] = fetch_add(graph.parts[NEXT_SLOT], part, 1)
    replica[at, NEXT_REPLICA] = vertex[v, FIRST_REPLICA]
    vertex[v, FIRST_REPLICA] = at + 1
    out.replicas.vertex[at - shared[1]] = v
    return at


@inlined
def _make_source(replica: int, v: int, graph: Graph, out: Decisions) -> None:
    if graph.placement.replica[replica, IS_SOURCE] == 0:
        graph.placement.replica[replica, IS_SOURCE] = 1
        n = fetch_add(out.counts, N_SOURCES, 1)
        out.sources.replica[n], out.sources.vertex[n] = replica, v


@inlined
def _new_record(u: int, v: int, part: int, older: int, key: int, graph: Graph, records: EdgeRecords) -> int:
    """A record for an edge whose ends are locked, and its entry in the table, which all threads share."""
    free, fields = graph.parts[FREE_EDGE], records.fields
    r = int(free[part]) - 1
    # Nothing is freed meanwhile, so a record that is first again is still followed by the same one.
    while r >= 0 and not swap_if(free, part, r + 1, fields[r, OLDER]):
        r = int(free[part]) - 1
    if r < 0:
        r = fetch_add(records.counters, USED, 1)
        fields[r, PART], fields[r, SLOT] = part, _NO_SLOT
    for f in range(records.value_known.shape[1]):
        records.value_known[r, f] = 0
    for w in range(records.value.shape[1]):
        records.value[r, w] = 0.0
    fields[r, U], fields[r, V], records.key[r] = u, v, key
    fields[r, OLDER], fields[r, ADDED] = older + 1, 0
    if older >= 0:  # its place in the table stays
        at = place_of(records, u, v, key)
        swap_if(records.table, at, older + 1, r + 1)
        return r
    mask = np.uint64(records.counters[MASK])
    at = home_of(records, u, v, key)
    while not swap_if(records.table, at, 0, r + 1):
        at = (at + np.uint64(1)) & mask
    return r


@lean
def _number(
    order: Ints, events: Plain, rules: Plain, graph: Plain, placement: Plain, records: Plain, counts: Ints,
    rows: Ints32, status: Small, shared: Ints,
) -> bool:  # fmt: skip
    """Give edges their slots, in order, and count what was created; returns whether all were applied."""
    named_graph = Graph(*graph, Placement(*placement))  # type: ignore[call-arg]
    return _number_all(
        order, Rules(*rules), named_graph, EdgeRecords(*records), named(counts, rows), status, shared
    )


@inlined
def _number_all(
    order: Ints, rules: Rules, graph: Graph, records: EdgeRecords, out: Decisions, status: Small, shared: Ints
) -> bool:
    adds, next_edge, n, distinct = out.adds, graph.parts[NEXT_EDGE], 0, 0
    for k in range(len(order)):
        slot = adds.slot[k]
        if slot == _NO_EDGE:
            continue
        part = adds.part[k]
        if slot == _NO_SLOT:
            slot = next_edge[part]
            next_edge[part] += 1
            if rules.mode != APPEND:
                records.fields[adds.record[k], SLOT] = slot
        if rules.mode != APPEND and records.fields[adds.record[k], OLDER] == 0:
            distinct += 1
        adds.record[n], adds.part[n], adds.slot[n] = adds.record[k], part, slot
        adds.u[n], adds.v[n], adds.event[n] = adds.u[k], adds.v[k], adds.event[k]
        adds.u_replica[n], adds.v_replica[n] = adds.u_replica[k], adds.v_replica[k]
        n += 1
    out.counts[N_ADDS] = n
    vertices = graph.counters[VERTEX_COUNT] - shared[0]
    out.counts[N_VERTICES], out.counts[N_REPLICAS] = vertices, graph.counters[REPLICA_COUNT] - shared[1]
    graph.counters[LIVE_COUNT] += vertices
    if graph.feature_known.shape[1] > 0:
        graph.counters[LACKING_COUNT] += vertices
    records.counters[COUNT] += distinct
    return bool(n == len(order))
