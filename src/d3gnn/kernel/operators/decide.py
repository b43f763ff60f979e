"""What each event of a batch does to the graph, decided one by one, in order, before anything is sent."""

from __future__ import annotations

from typing import Any, NamedTuple

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
from d3gnn.kernel.partitioners import Placement, choose
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
)
from d3gnn.kernel.prefetch import AHEAD, fetch
from d3gnn.types import Bytes, Floats, Hashes, Ints, Ints32, Small

# Compiled code reads plain integers.
_CREATE, _DELETE = int(Op.CREATE), int(Op.DELETE)
_VERTEX, _EDGE, _FEATURE = int(Element.VERTEX), int(Element.EDGE), int(Element.FEATURE)
_EDGE_FEATURE, _LABEL = int(Element.EDGE_FEATURE), int(Element.LABEL)
_APPLIED, _REPEATED, _LATE = int(Reason.APPLIED), int(Reason.REPEATED), int(Reason.LATE)
_NO_VERTEX, _NO_EDGE = int(Reason.NO_SUCH_VERTEX), int(Reason.NO_SUCH_EDGE)
MULTI, APPEND = 1, 2
VERTICES, REPLICAS = 0, 1
_GONE, _HERE = 1, 2


#: A named tuple as a plain one: the way from Python into compiled code is several times faster for those.
Bare = tuple[Any, ...]


class Rules(NamedTuple):
    """The schema and the partitioner, as numbers."""

    mode: int  # 0: simple or keyed, MULTI or APPEND
    directed: bool
    partitioner: int
    first_weight: float
    second_weight: float
    destinations: bool  # whether they get values, too
    edge_feature_ends: Ints  # [features, 2]: where in an edge's values each feature is


class Events(NamedTuple):
    """A batch with ids as codes (-1: never seen)."""

    op: Small
    element: Small
    src: Ints32
    dst: Ints32
    key: Ints
    feature: Small
    time: Ints
    values: Floats
    value_offsets: Ints  # empty where no event has a value
    part: Ints32  # the part that was chosen before, in a replay; empty otherwise


class Graph(NamedTuple):
    """What Partition knows of ids, vertices, replicas and labels."""

    live: Ints32  # by code: its vertex plus 1, 0 for none
    hashes: Hashes  # by code
    label_state: Bytes  # by code: _HERE, _GONE (deleted, but its time counts), or 0
    label_time: Ints
    label: Floats
    feature_time: Ints  # by vertex
    feature_known: Bytes
    parts: Ints  # [NEXT_ROW ... LOAD, part]
    counters: Ints  # vertices, replicas
    placement: Placement


class Decisions(NamedTuple):
    """What a batch does: lists of vertices, edges and the events behind them, and their lengths."""

    counts: Ints  # [N_VERTEX ... N_EDGE_FEATURE]
    lists: Ints32  # [VERTEX_EVENT ... EDGE_FEATURE_EVENT, entry]


# Places in `Decisions.counts`.
N_VERTEX, N_REPLICA, N_SOURCE, N_ADD, N_REMOVE, N_DROP, N_FEATURE, N_EDGE_FEATURE = range(8)
# Rows of `Decisions.lists`. New vertices and replicas have the next numbers, in order. ADD_RECORD is -1 for
# an edge that is taken back in the same batch. EDGE_FEATURE_RECORD is -1 - a for add number a if there are no
# records.
(
    VERTEX_EVENT, REPLICA_VERTEX, SOURCE_REPLICA, SOURCE_VERTEX,
    ADD_RECORD, ADD_PART, ADD_SLOT, ADD_U, ADD_V, ADD_U_REPLICA, ADD_V_REPLICA, ADD_EVENT,
    REMOVE_PART, REMOVE_SLOT, REMOVE_LOOP, REMOVE_EVENT, DROP_VERTEX, DROP_EVENT,
    FEATURE_VERTEX, FEATURE_EVENT, EDGE_FEATURE_RECORD, EDGE_FEATURE_EVENT,
) = range(22)  # fmt: skip


def make_decisions(n: int) -> Decisions:
    """Empty lists for a batch of n events, each of which may make two vertices, in up to three replicas."""
    return Decisions(np.zeros(8, np.int64), np.empty((22, 3 * n), np.int32))


@lean
def decide(
    order: Ints, events: Bare, rules: Bare, graph: Bare, placement: Bare, records: Bare, counts: Ints,
    lists: Ints32, status: Small,
) -> bool:  # fmt: skip
    """Apply the events in order; whether all were applied.

    `status` comes in with the reasons already known and goes out complete.
    """
    whole = Graph(*graph, Placement(*placement))  # type: ignore[call-arg]  # graph is one shorter
    made = Decisions(counts, lists)
    _decide(order, Events(*events), Rules(*rules), whole, EdgeRecords(*records), made, status)
    for reason in status:  # noqa: SIM110  # compiled
        if reason != _APPLIED:
            return False
    return True


@inlined
def _decide(
    order: Ints, events: Events, rules: Rules, graph: Graph, records: EdgeRecords, out: Decisions,
    status: Small,
) -> None:  # fmt: skip
    first_vertex = graph.counters[VERTICES]
    for k in range(len(order)):
        _look_ahead(k, order, events, rules, graph, records)
        i = order[k]
        if status[i] != 0:
            continue
        element = events.element[i]
        if element in (_EDGE, _EDGE_FEATURE):
            status[i] = _edge_event(i, events, rules, graph, records, out)
        elif element == _LABEL:
            status[i] = _label_event(i, events, graph)
        else:
            status[i] = _vertex_event(i, events, graph, out, first_vertex)
    for a in range(out.counts[N_ADD]):
        if out.lists[ADD_RECORD, a] >= 0:
            records.fields[out.lists[ADD_RECORD, a], ADDED] = 0


@inlined
def _look_ahead(
    k: int, order: Ints, events: Events, rules: Rules, graph: Graph, records: EdgeRecords
) -> None:
    """Ask for what the events after number k will look at: ids lead to vertices, and those to replicas."""
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
def _make_vertex(code: int, i: int, graph: Graph, out: Decisions) -> int:
    """A vertex without a master yet."""
    v = graph.counters[VERTICES]
    graph.counters[VERTICES] += 1
    graph.live[code] = v + 1
    graph.placement.vertex[v, CODE] = code
    graph.placement.vertex[v, FIRST_REPLICA] = 0
    graph.placement.vertex[v, DEGREE] = 0
    for f in range(graph.feature_known.shape[1]):
        graph.feature_known[v, f] = 0
    out.lists[VERTEX_EVENT, out.counts[N_VERTEX]] = i
    out.counts[N_VERTEX] += 1
    return v  # type: ignore[no-any-return]


@inlined
def _settle(v: int, part: int, graph: Graph, out: Decisions) -> None:
    """Give a new vertex its master; the master's part is always a replica, and always gets values."""
    graph.placement.vertex[v, MASTER_PART] = part
    graph.placement.vertex[v, MASTER_ROW] = graph.parts[NEXT_ROW, part]
    graph.parts[NEXT_ROW, part] += 1
    graph.placement.replica[_replica(v, part, graph, out), IS_SOURCE] = 1


@inlined
def _replica(v: int, part: int, graph: Graph, out: Decisions) -> int:
    """The replica of v in a part, made if need be."""
    vertex, replica = graph.placement.vertex, graph.placement.replica
    at = vertex[v, FIRST_REPLICA] - 1
    while at >= 0:
        if replica[at, REPLICA_PART] == part:
            return at  # type: ignore[no-any-return]
        at = replica[at, NEXT_REPLICA] - 1
    at = graph.counters[REPLICAS]
    graph.counters[REPLICAS] += 1
    replica[at, REPLICA_PART] = part
    replica[at, REPLICA_SLOT] = graph.parts[NEXT_SLOT, part]
    replica[at, NEXT_REPLICA] = vertex[v, FIRST_REPLICA]
    replica[at, IS_SOURCE] = 0
    vertex[v, FIRST_REPLICA] = at + 1
    graph.parts[NEXT_SLOT, part] += 1
    out.lists[REPLICA_VERTEX, out.counts[N_REPLICA]] = v
    out.counts[N_REPLICA] += 1
    return at  # type: ignore[no-any-return]


@inlined
def _make_source(replica: int, v: int, graph: Graph, out: Decisions) -> None:
    if graph.placement.replica[replica, IS_SOURCE] == 0:
        graph.placement.replica[replica, IS_SOURCE] = 1
        out.lists[SOURCE_REPLICA, out.counts[N_SOURCE]] = replica
        out.lists[SOURCE_VERTEX, out.counts[N_SOURCE]] = v
        out.counts[N_SOURCE] += 1


@inlined
def _vertex_event(i: int, events: Events, graph: Graph, out: Decisions, first_vertex: int) -> int:
    code, op = events.src[i], events.op[i]
    v = _live(code, graph)
    if v < 0:
        if op != _CREATE:
            return _NO_VERTEX
        v = _make_vertex(code, i, graph, out)
        if len(events.part):
            part = events.part[i]
        else:
            part = graph.hashes[code] % np.uint64(graph.parts.shape[1])
        _settle(v, int(part), graph, out)
        if not _has_value(i, events):
            return _APPLIED
    elif events.element[i] == _VERTEX:
        if op == _DELETE:
            graph.live[code] = 0
            graph.label_state[code] = 0
            if v < first_vertex:
                out.lists[DROP_VERTEX, out.counts[N_DROP]] = v
                out.lists[DROP_EVENT, out.counts[N_DROP]] = i
                out.counts[N_DROP] += 1
            return _APPLIED
        if not _has_value(i, events):
            return _REPEATED
    f = events.feature[i]
    if graph.feature_known[v, f] and events.time[i] < graph.feature_time[v, f]:
        return _LATE
    graph.feature_known[v, f] = 1
    graph.feature_time[v, f] = events.time[i]
    out.lists[FEATURE_VERTEX, out.counts[N_FEATURE]] = v
    out.lists[FEATURE_EVENT, out.counts[N_FEATURE]] = i
    out.counts[N_FEATURE] += 1
    return _APPLIED


@inlined
def _label_event(i: int, events: Events, graph: Graph) -> int:
    code = events.src[i]
    if events.op[i] == _DELETE and (code < 0 or graph.label_state[code] != _HERE):
        return _REPEATED if _live(code, graph) >= 0 else _NO_VERTEX
    if graph.label_state[code] != 0 and events.time[i] < graph.label_time[code]:
        return _LATE
    graph.label_time[code] = events.time[i]
    if events.op[i] == _DELETE:
        graph.label_state[code] = _GONE
        return _APPLIED
    graph.label_state[code] = _HERE
    begin = events.value_offsets[i]
    for k in range(graph.label.shape[1]):
        graph.label[code, k] = events.values[begin + k]
    return _APPLIED


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
    at = np.uint64(0)
    r = -1
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
        u = _make_vertex(from_code, i, graph, out)
    new_v = _live(to_code, graph) < 0  # a loop has just made it
    if new_v:
        v = _make_vertex(to_code, i, graph, out)
    else:
        v = _live(to_code, graph)
    if len(events.part):
        part = int(events.part[i])
    else:
        part = int(
            choose(
                rules.partitioner, u, v, graph.hashes[from_code], graph.hashes[to_code], graph.placement,
                rules.first_weight, rules.second_weight,
            )
        )  # fmt: skip
    if new_u:
        _settle(u, part, graph, out)
    if new_v:
        _settle(v, part, graph, out)
    graph.placement.vertex[u, DEGREE] += 1
    graph.placement.vertex[v, DEGREE] += 1
    graph.parts[LOAD, part] += 1
    u_replica, v_replica = _replica(u, part, graph, out), _replica(v, part, graph, out)
    _make_source(u_replica, u, graph, out)
    if rules.destinations or not rules.directed:
        _make_source(v_replica, v, graph, out)
    a = out.counts[N_ADD]
    out.counts[N_ADD] += 1
    if rules.mode == APPEND:
        out.lists[ADD_RECORD, a] = -2  # there are no records
        out.lists[ADD_SLOT, a] = graph.parts[NEXT_EDGE, part]
        graph.parts[NEXT_EDGE, part] += 1
        if _has_value(i, events):
            out.lists[EDGE_FEATURE_RECORD, out.counts[N_EDGE_FEATURE]] = -1 - a
            out.lists[EDGE_FEATURE_EVENT, out.counts[N_EDGE_FEATURE]] = i
            out.counts[N_EDGE_FEATURE] += 1
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
        out.lists[ADD_RECORD, a] = r
        out.lists[ADD_SLOT, a] = records.fields[r, SLOT]
        if _has_value(i, events):
            _set_edge_feature(i, r, events, rules, records, out)
    out.lists[ADD_PART, a] = part
    out.lists[ADD_U, a], out.lists[ADD_V, a] = u, v
    out.lists[ADD_U_REPLICA, a], out.lists[ADD_V_REPLICA, a] = u_replica, v_replica
    out.lists[ADD_EVENT, a] = i


@inlined
def _remove_edge(i: int, at: np.uint64, r: int, graph: Graph, records: EdgeRecords, out: Decisions) -> None:
    if records.fields[r, OLDER] > 0:
        records.table[at] = records.fields[r, OLDER]
    else:
        vacate(records, at)
    part = records.fields[r, PART]
    graph.parts[LOAD, part] -= 1
    if records.fields[r, ADDED] > 0:
        out.lists[ADD_RECORD, records.fields[r, ADDED] - 1] = -1
    else:
        n = out.counts[N_REMOVE]
        out.counts[N_REMOVE] += 1
        out.lists[REMOVE_PART, n], out.lists[REMOVE_SLOT, n], out.lists[REMOVE_EVENT, n] = (
            part,
            records.fields[r, SLOT],
            i,
        )
        out.lists[REMOVE_LOOP, n] = 1 if records.fields[r, U] == records.fields[r, V] else 0
    free_record(records, r, graph.parts)


@inlined
def _set_edge_feature(
    i: int, r: int, events: Events, rules: Rules, records: EdgeRecords, out: Decisions
) -> int:
    f = events.feature[i]
    if records.value_known[r, f] and events.time[i] < records.value_time[r, f]:
        return _LATE
    # A deleted value is known as well: its time counts.
    records.value_known[r, f] = _GONE if events.op[i] == _DELETE else _HERE
    records.value_time[r, f] = events.time[i]
    begin, end = rules.edge_feature_ends[f, 0], rules.edge_feature_ends[f, 1]
    for k in range(begin, end):
        if events.op[i] == _DELETE:
            records.value[r, k] = 0.0
        else:
            records.value[r, k] = events.values[events.value_offsets[i] + k - begin]
    out.lists[EDGE_FEATURE_RECORD, out.counts[N_EDGE_FEATURE]] = r
    out.lists[EDGE_FEATURE_EVENT, out.counts[N_EDGE_FEATURE]] = i
    out.counts[N_EDGE_FEATURE] += 1
    return _APPLIED
