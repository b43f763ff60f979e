"""Apply the events of a batch to the graph, one by one in order; nothing is sent before all are applied."""

from __future__ import annotations

import numpy as np

from d3gnn.events import Element, Op, Reason
from d3gnn.kernel.compiled import inlined, lean
from d3gnn.kernel.edge_table import (
    ADDED,
    COUNT,
    LOAD,
    NEXT_EDGE,
    NEXT_ROW,
    NEXT_SLOT,
    OLDER,
    PART,
    SLOT,
    EdgeRecords,
    U,
    V,
    free_record,
    home_of,
    new_record,
    place_of,
    vacate,
)
from d3gnn.kernel.operators.decisions import (
    N_ADDS,
    N_EDGE_FEATURES,
    N_FEATURES,
    N_LABELS,
    N_REMOVES,
    N_REPLICAS,
    N_SOURCES,
    N_VERTEX_DELETES,
    N_VERTICES,
    NO_RECORD,
    REMOVED,
    Decisions,
    add_entry,
    named,
)
from d3gnn.kernel.operators.encode_events import Events
from d3gnn.kernel.operators.features import drop_features, take_feature, without_features
from d3gnn.kernel.operators.graph_state import (
    APPEND,
    DELETED,
    MULTI,
    PRESENT,
    REPLICA_COUNT,
    VERTEX_COUNT,
    Graph,
    Plain,
    Rules,
)
from d3gnn.kernel.partitioners.base import (
    CODE,
    DEGREE,
    FIRST_REPLICA,
    IS_SOURCE,
    MASTER_PART,
    MASTER_ROW,
    NEXT_REPLICA,
    REPLICA_PART,
    REPLICA_SLOT,
    Placement,
    choose,
)
from d3gnn.kernel.prefetch import AHEAD, fetch
from d3gnn.types import Ints, Ints32, Small

# Compiled code reads plain integers.
_CREATE, _DELETE = int(Op.CREATE), int(Op.DELETE)
_VERTEX, _EDGE, _LABEL = int(Element.VERTEX), int(Element.EDGE), int(Element.LABEL)
_EDGE_FEATURE = int(Element.EDGE_FEATURE)
_APPLIED, _REPEATED, _LATE = int(Reason.APPLIED), int(Reason.REPEATED), int(Reason.LATE)
_NO_VERTEX, _NO_EDGE = int(Reason.NO_SUCH_VERTEX), int(Reason.NO_SUCH_EDGE)


@lean
def apply_events(
    order: Ints, events: Plain, rules: Plain, graph: Plain, placement: Plain, records: Plain, counts: Ints,
    rows: Ints32, status: Small,
) -> bool:  # fmt: skip
    """Apply the events in this order; returns whether all were applied.

    Events whose `status` is not 0 are skipped; the others get theirs. The effects on the graph are appended
    to the `DecisionRows` (counts, rows). Partition calls a copy with the `choose` of its partitioner.
    """
    _apply_all(
        order, Events(*events), Rules(*rules),
        Graph(*graph, Placement(*placement)),  # type: ignore[call-arg]  # graph is one shorter
        EdgeRecords(*records), named(counts, rows), status,
    )  # fmt: skip
    for reason in status:  # noqa: SIM110  # compiled
        if reason != _APPLIED:
            return False
    return True


@inlined
def _apply_all(
    order: Ints, events: Events, rules: Rules, graph: Graph, records: EdgeRecords, out: Decisions,
    status: Small,
) -> None:  # fmt: skip
    first_vertex = graph.counters[VERTEX_COUNT]
    for k in range(len(order)):
        _look_ahead(k, order, events, rules, graph, records)
        i = order[k]
        if status[i] != 0:
            continue
        element = events.element[i]
        if element in (_EDGE, _EDGE_FEATURE):
            status[i] = _edge_event(i, events, rules, graph, records, out)
        elif element == _LABEL:
            status[i] = _label_event(i, events, graph, out)
        else:
            status[i] = _vertex_event(i, events, graph, out, first_vertex)
    for a in range(out.counts[N_ADDS]):
        if out.adds.record[a] >= 0:
            records.fields[out.adds.record[a], ADDED] = 0


@inlined
def _look_ahead(
    k: int, order: Ints, events: Events, rules: Rules, graph: Graph, records: EdgeRecords
) -> None:
    """Prefetch what the events after number k will read: ids lead to vertices, and vertices to replicas."""
    last = len(order) - 1
    if last < AHEAD:
        return
    far = order[min(last, k + 3 * AHEAD)]
    fetch(graph.live, events.src[far])
    fetch(graph.live, events.dst[far])
    near = order[min(last, k + 2 * AHEAD)]
    u, v = _live(events.src[near], graph), _live(events.dst[near], graph)
    fetch(graph.placement.vertex, u)
    fetch(graph.placement.vertex, v)
    if rules.mode != APPEND and u >= 0 and v >= 0:
        fetch(records.table, home_of(records, u, v, events.key[near]))
    next = order[min(last, k + AHEAD)]
    u, v = _live(events.src[next], graph), _live(events.dst[next], graph)
    if u >= 0:
        fetch(graph.placement.replica, graph.placement.vertex[u, FIRST_REPLICA] - 1)
    if v >= 0:
        fetch(graph.placement.replica, graph.placement.vertex[v, FIRST_REPLICA] - 1)
    if rules.mode != APPEND and u >= 0 and v >= 0:
        record = records.table[home_of(records, u, v, events.key[next])] - 1
        fetch(records.fields, record)
        fetch(records.key, record)


@inlined
def _has_value(i: int, events: Events) -> bool:
    return len(events.value_offsets) > 0 and events.value_offsets[i + 1] > events.value_offsets[i]


@inlined
def _live(code: int, graph: Graph) -> int:
    return graph.live[code] - 1 if code >= 0 else -1


@inlined
def _new_vertex(code: int, i: int, graph: Graph, out: Decisions) -> int:
    """Create a vertex that has no master yet."""
    v = graph.counters[VERTEX_COUNT]
    graph.counters[VERTEX_COUNT] += 1
    graph.live[code] = v + 1
    graph.placement.vertex[v, CODE] = code
    graph.placement.vertex[v, FIRST_REPLICA] = 0
    graph.placement.vertex[v, DEGREE] = 0
    without_features(v, graph)
    out.vertices.event[add_entry(out.counts, N_VERTICES)] = i
    if graph.label_state[code] == PRESENT:  # parked until now
        _send_label(v, i, out)
    return v  # type: ignore[no-any-return]


@inlined
def _place_master(v: int, part: int, graph: Graph, out: Decisions) -> None:
    """Place the master of a new vertex. Its part also gets a replica, which always receives values."""
    graph.placement.vertex[v, MASTER_PART] = part
    graph.placement.vertex[v, MASTER_ROW] = graph.parts[NEXT_ROW, part]
    graph.parts[NEXT_ROW, part] += 1
    graph.placement.replica[_replica(v, part, graph, out), IS_SOURCE] = 1


@inlined
def _replica(v: int, part: int, graph: Graph, out: Decisions) -> int:
    """The replica of v in a part; created if there is none."""
    vertex, replica = graph.placement.vertex, graph.placement.replica
    at = vertex[v, FIRST_REPLICA] - 1
    while at >= 0:
        if replica[at, REPLICA_PART] == part:
            return at  # type: ignore[no-any-return]
        at = replica[at, NEXT_REPLICA] - 1
    at = graph.counters[REPLICA_COUNT]
    graph.counters[REPLICA_COUNT] += 1
    replica[at, REPLICA_PART] = part
    replica[at, REPLICA_SLOT] = graph.parts[NEXT_SLOT, part]
    replica[at, NEXT_REPLICA] = vertex[v, FIRST_REPLICA]
    replica[at, IS_SOURCE] = 0
    vertex[v, FIRST_REPLICA] = at + 1
    graph.parts[NEXT_SLOT, part] += 1
    out.replicas.vertex[add_entry(out.counts, N_REPLICAS)] = v
    return at  # type: ignore[no-any-return]


@inlined
def _make_source(replica: int, v: int, graph: Graph, out: Decisions) -> None:
    if graph.placement.replica[replica, IS_SOURCE] == 0:
        graph.placement.replica[replica, IS_SOURCE] = 1
        n = add_entry(out.counts, N_SOURCES)
        out.sources.replica[n], out.sources.vertex[n] = replica, v


@inlined
def _vertex_event(i: int, events: Events, graph: Graph, out: Decisions, first_vertex: int) -> int:
    code, op = events.src[i], events.op[i]
    v = _live(code, graph)
    if v < 0:
        if op != _CREATE:
            return _NO_VERTEX
        v = _new_vertex(code, i, graph, out)
        if len(events.part):
            part = events.part[i]
        else:
            part = graph.hashes[code] % np.uint64(graph.parts.shape[1])
        _place_master(v, int(part), graph, out)
        if not _has_value(i, events):
            return _APPLIED
    elif events.element[i] == _VERTEX:
        if op == _DELETE:
            graph.live[code] = 0
            drop_features(v, graph)
            graph.label_state[code] = 0
            if v < first_vertex:
                n = add_entry(out.counts, N_VERTEX_DELETES)
                out.vertex_deletes.vertex[n], out.vertex_deletes.event[n] = v, i
            return _APPLIED
        if not _has_value(i, events):
            return _REPEATED
    f = events.feature[i]
    if not take_feature(v, f, events.time[i], op == _DELETE, graph):
        return _LATE
    n = add_entry(out.counts, N_FEATURES)
    out.features.vertex[n], out.features.event[n] = v, i
    return _APPLIED


@inlined
def _label_event(i: int, events: Events, graph: Graph, out: Decisions) -> int:
    """Labels may come before their vertex: the label is parked until the vertex is created."""
    code = events.src[i]
    if events.op[i] == _DELETE and (code < 0 or graph.label_state[code] != PRESENT):
        return _REPEATED if _live(code, graph) >= 0 else _NO_VERTEX
    if graph.label_state[code] != 0 and events.time[i] < graph.label_time[code]:
        return _LATE
    graph.label_time[code] = events.time[i]
    if events.op[i] == _DELETE:
        graph.label_state[code] = DELETED
    else:
        graph.label_state[code] = PRESENT
        begin = events.value_offsets[i]
        for k in range(graph.label.shape[1]):
            graph.label[code, k] = events.values[begin + k]
    if graph.live[code] > 0:
        _send_label(graph.live[code] - 1, i, out)
    return _APPLIED


@inlined
def _send_label(v: int, i: int, out: Decisions) -> None:
    n = add_entry(out.counts, N_LABELS)
    out.labels.vertex[n], out.labels.event[n] = v, i


@inlined
def _edge_event(
    i: int, events: Events, rules: Rules, graph: Graph, records: EdgeRecords, out: Decisions
) -> int:
    from_code, to_code = events.src[i], events.dst[i]
    if not rules.directed and from_code > to_code:
        from_code, to_code = to_code, from_code
    u, v = _live(from_code, graph), _live(to_code, graph)
    creates = events.op[i] == _CREATE and events.element[i] == _EDGE
    exists = u >= 0 and v >= 0
    if not exists and not creates:
        return _NO_EDGE
    at, r = np.uint64(0), -1
    if exists and rules.mode != APPEND:
        at = place_of(records, u, v, events.key[i])
        r = int(records.table[at]) - 1
    if creates and (r < 0 or rules.mode == MULTI):
        _add_edge(i, u, v, from_code, to_code, np.uint64(at), r, events, rules, graph, records, out)
        return _APPLIED
    if r < 0:
        return _NO_EDGE
    if events.op[i] == _DELETE and events.element[i] == _EDGE:
        _remove_edge(i, at, r, graph, records, out)
        return _APPLIED
    if creates and not _has_value(i, events):
        return _REPEATED
    return _set_edge_feature(i, r, events, rules, records, out)


@inlined
def _add_edge(
    i: int, u: int, v: int, from_code: int, to_code: int, at: np.uint64, older: int, events: Events,
    rules: Rules, graph: Graph, records: EdgeRecords, out: Decisions,
) -> None:  # fmt: skip
    new_u = u < 0
    if new_u:
        u = _new_vertex(from_code, i, graph, out)
    v = _live(to_code, graph)  # a loop has just created it
    new_v = v < 0
    if new_v:
        v = _new_vertex(to_code, i, graph, out)
    part = 0
    if len(events.part):
        part = int(events.part[i])
    elif len(graph.placement.load) > 1:
        hash_u, hash_v = graph.hashes[from_code], graph.hashes[to_code]
        part = int(np.int64(choose(u, v, hash_u, hash_v, graph.placement, rules.settings)))
    if new_u:
        _place_master(u, part, graph, out)
    if new_v:
        _place_master(v, part, graph, out)
    graph.placement.vertex[u, DEGREE] += 1
    graph.placement.vertex[v, DEGREE] += 1
    graph.parts[LOAD, part] += 1
    u_replica, v_replica = _replica(u, part, graph, out), _replica(v, part, graph, out)
    _make_source(u_replica, u, graph, out)
    if rules.destinations or not rules.directed:
        _make_source(v_replica, v, graph, out)
    a = add_entry(out.counts, N_ADDS)
    if rules.mode == APPEND:
        out.adds.record[a] = NO_RECORD
        out.adds.slot[a] = graph.parts[NEXT_EDGE, part]
        graph.parts[NEXT_EDGE, part] += 1
    else:
        r = new_record(records, part, graph.parts)
        if older < 0:
            if new_u or new_v:
                at = place_of(records, u, v, events.key[i])
            records.counters[COUNT] += 1
        records.fields[r, U], records.fields[r, V], records.key[r] = u, v, events.key[i]
        records.fields[r, OLDER] = older + 1
        records.fields[r, ADDED] = a + 1
        records.table[at] = r + 1
        out.adds.record[a] = r
        out.adds.slot[a] = records.fields[r, SLOT]
        if _has_value(i, events):
            _set_edge_feature(i, r, events, rules, records, out)
    out.adds.part[a] = part
    out.adds.u[a], out.adds.v[a] = u, v
    out.adds.u_replica[a], out.adds.v_replica[a] = u_replica, v_replica
    out.adds.event[a] = i


@inlined
def _remove_edge(i: int, at: np.uint64, r: int, graph: Graph, records: EdgeRecords, out: Decisions) -> None:
    if records.fields[r, OLDER] > 0:
        records.table[at] = records.fields[r, OLDER]
    else:
        vacate(records, at)
    part = records.fields[r, PART]
    graph.parts[LOAD, part] -= 1
    if records.fields[r, ADDED] > 0:
        out.adds.record[records.fields[r, ADDED] - 1] = REMOVED
    else:
        n = add_entry(out.counts, N_REMOVES)
        out.removes.part[n], out.removes.slot[n] = part, records.fields[r, SLOT]
        out.removes.is_loop[n] = 1 if records.fields[r, U] == records.fields[r, V] else 0
        out.removes.event[n] = i
    free_record(records, r, graph.parts)


@inlined
def _set_edge_feature(
    i: int, r: int, events: Events, rules: Rules, records: EdgeRecords, out: Decisions
) -> int:
    f = events.feature[i]
    if records.value_known[r, f] and events.time[i] < records.value_time[r, f]:
        return _LATE
    # The time of a deleted value is kept: older events are late.
    records.value_known[r, f] = DELETED if events.op[i] == _DELETE else PRESENT
    records.value_time[r, f] = events.time[i]
    begin, end = rules.edge_feature_ends[f, 0], rules.edge_feature_ends[f, 1]
    for k in range(begin, end):
        if events.op[i] == _DELETE:
            records.value[r, k] = 0.0
        else:
            records.value[r, k] = events.values[events.value_offsets[i] + k - begin]
    n = add_entry(out.counts, N_EDGE_FEATURES)
    out.edge_features.record[n], out.edge_features.event[n] = r, i
    return _APPLIED
