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
    OLDER,
    PART,
    SLOT,
    EdgeRecords,
    U,
    V,
    detach,
    free_record,
    new_record,
    place_of,
)
from d3gnn.kernel.operators.decisions import (
    N_ADDS,
    N_EDGE_FEATURES,
    N_FEATURES,
    N_LABELS,
    N_REMOVES,
    N_VERTEX_DELETES,
    N_VERTICES,
    NO_RECORD,
    REMOVED,
    Decisions,
    add_entry,
    named,
)
from d3gnn.kernel.operators.encode_events import Events, has_value
from d3gnn.kernel.operators.features import drop_features, take_feature, without_features
from d3gnn.kernel.operators.graph_state import (
    APPEND,
    DELETED,
    MULTI,
    PRESENT,
    Graph,
    Plain,
    Rules,
    vertex_of,
)
from d3gnn.kernel.operators.lifetimes import (
    edge_is_late,
    end_edge,
    end_vertex,
    expired_copy,
    has_ttl,
    prolong_edge,
    prolong_vertex,
    start_edge,
    start_vertex,
    vertex_is_late,
)
from d3gnn.kernel.operators.look_ahead import look_ahead
from d3gnn.kernel.operators.neighbourhood import find_neighbours
from d3gnn.kernel.operators.replicas import make_source, place_master, replica_of
from d3gnn.kernel.operators.vertex_deletes import is_late, record_delete
from d3gnn.kernel.partitioners.base import (
    CODE,
    DEGREE,
    FIRST_REPLICA,
    VERTEX_COUNT,
    Placement,
    choose,
    place,
)
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
        look_ahead(k, order, events, rules, graph, records)
        i = order[k]
        if status[i] != 0:
            continue
        element = events.element[i]
        if element in (_EDGE, _EDGE_FEATURE):
            status[i] = _edge_event(i, events, rules, graph, records, out)
        elif element == _LABEL:
            status[i] = _label_event(i, events, rules, graph, out)
        else:
            status[i] = _vertex_event(k, order, events, rules, graph, records, out, first_vertex)
    for a in range(out.counts[N_ADDS]):
        if out.adds.record[a] >= 0:
            records.fields[out.adds.record[a], ADDED] = 0


@inlined
def _new_vertex(code: int, i: int, events: Events, rules: Rules, graph: Graph, out: Decisions) -> int:
    """Create a vertex that has no master yet."""
    v = graph.counters[VERTEX_COUNT]
    graph.counters[VERTEX_COUNT] += 1
    graph.live[code] = v + 1
    graph.placement.vertex[v, CODE] = code
    graph.placement.vertex[v, FIRST_REPLICA] = 0
    graph.placement.vertex[v, DEGREE] = 0
    without_features(v, graph)
    out.vertices.event[add_entry(out.counts, N_VERTICES)] = i
    start_vertex(v, i, code, events, rules, graph)
    if graph.label_state[code] == PRESENT:  # parked until now
        _send_label(v, i, out)
    return v  # type: ignore[no-any-return]


@inlined
def _vertex_event(
    k: int, order: Ints, events: Events, rules: Rules, graph: Graph, records: EdgeRecords, out: Decisions,
    first_vertex: int,
) -> int:  # fmt: skip
    i = order[k]
    code, op = events.src[i], events.op[i]
    v = vertex_of(code, graph)
    if op == _DELETE and events.element[i] == _VERTEX:
        if v < 0 and not events.logged:
            return _NO_VERTEX
        if not has_ttl(i, events):  # one that expired may come back with any event
            record_delete(code, events.time[i], graph)
        if v >= 0:
            end_vertex(v, rules, graph)
            delete_vertex(v, code, i, graph, out, first_vertex)
        return _APPLIED
    if v < 0 and op != _CREATE:
        return _NO_VERTEX
    if is_late(i, code, events, rules, graph):
        return _LATE
    if v < 0:
        if vertex_is_late(i, events, rules, records):
            return _LATE
        v = _new_vertex(code, i, events, rules, graph, out)
        if len(events.part):
            part = events.part[i]
        else:
            neighbours = find_neighbours(k, order, events, graph)
            part = np.int64(place(v, graph.hashes[code], neighbours, graph.placement, rules.settings))
        place_master(v, int(part), graph, out)
        if not has_value(i, events):
            return _APPLIED
    elif events.element[i] == _VERTEX and not has_value(i, events):
        return _APPLIED if prolong_vertex(v, i, events, rules, graph) else _REPEATED
    f = events.feature[i]
    if not take_feature(v, f, events.time[i], op == _DELETE, graph):
        return _LATE
    prolong_vertex(v, i, events, rules, graph)
    n = add_entry(out.counts, N_FEATURES)
    out.features.vertex[n], out.features.event[n] = v, i
    return _APPLIED


@inlined
def delete_vertex(v: int, code: int, i: int, graph: Graph, out: Decisions, first_vertex: int) -> None:
    graph.live[code] = 0
    graph.label_state[code] = 0
    drop_features(v, graph)
    if v < first_vertex:
        n = add_entry(out.counts, N_VERTEX_DELETES)
        out.vertex_deletes.vertex[n], out.vertex_deletes.event[n] = v, i


@inlined
def _label_event(i: int, events: Events, rules: Rules, graph: Graph, out: Decisions) -> int:
    """Labels may come before their vertex: the label is parked until the vertex is created."""
    code = events.src[i]
    if events.op[i] == _DELETE and (code < 0 or graph.label_state[code] != PRESENT):
        return _REPEATED if vertex_of(code, graph) >= 0 else _NO_VERTEX
    if graph.label_state[code] != 0 and events.time[i] < graph.label_time[code]:
        return _LATE
    if is_late(i, code, events, rules, graph):
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
        prolong_vertex(graph.live[code] - 1, i, events, rules, graph)
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
    u, v = vertex_of(from_code, graph), vertex_of(to_code, graph)
    creates = events.op[i] == _CREATE and events.element[i] == _EDGE
    exists = u >= 0 and v >= 0
    at, r = np.uint64(0), -1
    if exists and rules.mode != APPEND:
        at = place_of(records, u, v, events.key[i])
        r = int(records.table[at]) - 1
    if r < 0 and not creates:
        return _NO_EDGE
    if events.op[i] == _DELETE and events.element[i] == _EDGE:
        if has_ttl(i, events):
            r = expired_copy(i, r, events, rules, records)
            if r < 0:
                return _NO_EDGE
        end_edge(r, rules, records)
        remove_edge(i, at, r, graph, records, out)
        return _APPLIED
    if is_late(i, from_code, events, rules, graph) or is_late(i, to_code, events, rules, graph):
        return _LATE
    if creates and (r < 0 or rules.mode == MULTI):
        if edge_is_late(i, events, rules, records):
            return _LATE
        _add_edge(i, u, v, from_code, to_code, np.uint64(at), r, events, rules, graph, records, out)
        return _APPLIED
    if creates and not has_value(i, events):
        return _APPLIED if prolong_edge(i, r, events, rules, graph, records) else _REPEATED
    result = _set_edge_feature(i, r, events, rules, records, out)
    if result == _APPLIED:
        prolong_edge(i, r, events, rules, graph, records)
    return result


@inlined
def _add_edge(
    i: int, u: int, v: int, from_code: int, to_code: int, at: np.uint64, older: int, events: Events,
    rules: Rules, graph: Graph, records: EdgeRecords, out: Decisions,
) -> None:  # fmt: skip
    new_u = u < 0
    if new_u:
        u = _new_vertex(from_code, i, events, rules, graph, out)
    v = vertex_of(to_code, graph)  # a loop has just created it
    new_v = v < 0
    if new_v:
        v = _new_vertex(to_code, i, events, rules, graph, out)
    part = 0
    if len(events.part):
        part = int(events.part[i])
    elif len(graph.placement.load) > 1:
        hash_u, hash_v = graph.hashes[from_code], graph.hashes[to_code]
        part = int(np.int64(choose(u, v, hash_u, hash_v, graph.placement, rules.settings)))
    if new_u:
        place_master(u, part, graph, out)
    if new_v:
        place_master(v, part, graph, out)
    graph.placement.vertex[u, DEGREE] += 1
    graph.placement.vertex[v, DEGREE] += 1
    graph.parts[LOAD, part] += 1
    u_replica, v_replica = replica_of(u, part, graph, out), replica_of(v, part, graph, out)
    make_source(u_replica, u, graph, out)
    if rules.destinations or not rules.directed:
        make_source(v_replica, v, graph, out)
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
        start_edge(i, r, older, events, rules, graph, records)
        out.adds.record[a] = r
        out.adds.slot[a] = records.fields[r, SLOT]
        if has_value(i, events):
            _set_edge_feature(i, r, events, rules, records, out)
    out.adds.part[a] = part
    out.adds.u[a], out.adds.v[a] = u, v
    out.adds.u_replica[a], out.adds.v_replica[a] = u_replica, v_replica
    out.adds.event[a] = i


@inlined
def remove_edge(i: int, at: np.uint64, r: int, graph: Graph, records: EdgeRecords, out: Decisions) -> None:
    detach(records, at, r)
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
