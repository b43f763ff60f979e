"""What each event of a batch does to the graph, decided one by one, in order, before anything is sent."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from d3gnn.events import Element, Op, Reason
from d3gnn.kernel.compiled import lean
from d3gnn.kernel.edge_table import COUNT, EdgeRecords, free_record, new_record, place_of, vacate
from d3gnn.kernel.partitioners import Placement, choose
from d3gnn.types import Bools, Bytes, Floats, Hashes, Ints, Ints32, Small

# Compiled code reads plain integers.
_CREATE, _DELETE = int(Op.CREATE), int(Op.DELETE)
_VERTEX, _EDGE, _FEATURE = int(Element.VERTEX), int(Element.EDGE), int(Element.FEATURE)
_EDGE_FEATURE, _LABEL = int(Element.EDGE_FEATURE), int(Element.LABEL)
_APPLIED, _REPEATED, _LATE = int(Reason.APPLIED), int(Reason.REPEATED), int(Reason.LATE)
_NO_VERTEX, _NO_EDGE = int(Reason.NO_SUCH_VERTEX), int(Reason.NO_SUCH_EDGE)
MULTI, APPEND = 1, 2
VERTICES, REPLICAS = 0, 1
_GONE, _HERE = 1, 2


class Rules(NamedTuple):
    """The schema and the partitioner, as numbers."""

    mode: int  # 0: simple or keyed, MULTI or APPEND
    directed: bool
    partitioner: int
    first_weight: float
    second_weight: float
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
    """What Partition knows of vertices, replicas and labels."""

    live: Ints32  # by code: its vertex plus 1, 0 for none
    hashes: Hashes  # by code
    label_state: Bytes  # by code: _HERE, _GONE (deleted, but its time counts), or 0
    label_time: Ints
    label: Floats
    code: Ints32  # by vertex
    master: Ints32  # by vertex: part and row
    feature_time: Ints
    feature_known: Bytes
    placement: Placement
    replica_slot: Ints32  # by replica
    replica_source: Bytes
    next_row: Ints  # by part
    next_slot: Ints
    next_edge: Ints
    free_edge: Ints
    counters: Ints  # vertices, replicas


class Decisions(NamedTuple):
    """What a batch does: lists with the events behind each entry. `counts` holds their lengths, in order."""

    counts: Ints
    vertex_event: Ints32  # new vertices, the first being `first_vertex`
    replica_vertex: Ints32  # new replicas, the first being `first_replica`
    source_replica: Ints32
    source_vertex: Ints32
    add_record: Ints32  # -1: taken back in the same batch
    add_part: Ints32
    add_slot: Ints32
    add_u: Ints32
    add_v: Ints32
    add_u_replica: Ints32
    add_v_replica: Ints32
    add_event: Ints32
    remove_part: Ints32
    remove_slot: Ints32
    remove_event: Ints32
    remove_loop: Ints32  # 1 for an edge from a vertex to itself
    drop_vertex: Ints32
    drop_event: Ints32
    feature_vertex: Ints32
    feature_event: Ints32
    edge_feature_record: Ints32
    edge_feature_event: Ints32


# Places in `Decisions.counts`.
N_VERTEX, N_REPLICA, N_SOURCE, N_ADD, N_REMOVE, N_DROP, N_FEATURE, N_EDGE_FEATURE = range(8)


def make_decisions(n: int) -> Decisions:
    """Empty lists for a batch of n events."""
    twice = 2 * n
    lengths = (twice, 3 * n, twice, twice, *[n] * (len(Decisions._fields) - 5))
    whole = np.empty(sum(lengths), np.int32)
    lists = []
    at = 0
    for length in lengths:
        lists.append(whole[at : at + length])
        at += length
    return Decisions(np.zeros(8, np.int64), *lists)


@lean
def decide(
    order: Ints, events: Events, rules: Rules, graph: Graph, records: EdgeRecords, out: Decisions,
    status: Small,
) -> None:  # fmt: skip
    """Apply the events in order; `status` comes in with the reasons already known and goes out complete."""
    first_vertex = graph.counters[VERTICES]
    for k in range(len(order)):
        i = order[k]
        if status[i] != 0:
            continue
        element = events.element[i]
        if element == _EDGE or element == _EDGE_FEATURE:
            status[i] = _edge_event(i, events, rules, graph, records, out)
        elif element == _LABEL:
            status[i] = _label_event(i, events, graph)
        else:
            status[i] = _vertex_event(i, events, graph, out, first_vertex)
    for a in range(out.counts[N_ADD]):
        if out.add_record[a] >= 0:
            records.added[out.add_record[a]] = 0


@lean
def _has_value(i: int, events: Events) -> bool:
    return len(events.value_offsets) > 0 and events.value_offsets[i + 1] > events.value_offsets[i]  # type: ignore[no-any-return]


@lean
def _live(code: int, graph: Graph) -> int:
    return graph.live[code] - 1 if code >= 0 else -1  # type: ignore[no-any-return]


@lean
def _make_vertex(code: int, i: int, graph: Graph, out: Decisions) -> int:
    """A vertex without a master yet."""
    v = graph.counters[VERTICES]
    graph.counters[VERTICES] += 1
    graph.live[code] = v + 1
    graph.code[v] = code
    graph.placement.replicas[v] = 0
    graph.placement.degree[v] = 0
    for f in range(graph.feature_known.shape[1]):
        graph.feature_known[v, f] = 0
    out.vertex_event[out.counts[N_VERTEX]] = i
    out.counts[N_VERTEX] += 1
    return v  # type: ignore[no-any-return]


@lean
def _settle(v: int, part: int, graph: Graph, out: Decisions) -> None:
    """Give a new vertex its master; the master's part is always a replica, and always gets values."""
    graph.master[v, 0] = part
    graph.master[v, 1] = graph.next_row[part]
    graph.next_row[part] += 1
    graph.replica_source[_replica(v, part, graph, out)] = 1


@lean
def _replica(v: int, part: int, graph: Graph, out: Decisions) -> int:
    """The replica of v in a part, made if need be."""
    placement = graph.placement
    at = placement.replicas[v] - 1
    while at >= 0:
        if placement.replica_part[at] == part:
            return at  # type: ignore[no-any-return]
        at = placement.replica_next[at] - 1
    at = graph.counters[REPLICAS]
    graph.counters[REPLICAS] += 1
    placement.replica_part[at] = part
    placement.replica_next[at] = placement.replicas[v]
    placement.replicas[v] = at + 1
    graph.replica_slot[at] = graph.next_slot[part]
    graph.replica_source[at] = 0
    graph.next_slot[part] += 1
    out.replica_vertex[out.counts[N_REPLICA]] = v
    out.counts[N_REPLICA] += 1
    return at  # type: ignore[no-any-return]


@lean
def _make_source(replica: int, v: int, graph: Graph, out: Decisions) -> None:
    if graph.replica_source[replica] == 0:
        graph.replica_source[replica] = 1
        out.source_replica[out.counts[N_SOURCE]] = replica
        out.source_vertex[out.counts[N_SOURCE]] = v
        out.counts[N_SOURCE] += 1


@lean
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
            part = graph.hashes[code] % np.uint64(len(graph.next_row))
        _settle(v, np.int64(part), graph, out)
        if not _has_value(i, events):
            return _APPLIED
    elif events.element[i] == _VERTEX:
        if op == _DELETE:
            graph.live[code] = 0
            graph.label_state[code] = 0
            if v < first_vertex:
                out.drop_vertex[out.counts[N_DROP]] = v
                out.drop_event[out.counts[N_DROP]] = i
                out.counts[N_DROP] += 1
            return _APPLIED
        if not _has_value(i, events):
            return _REPEATED
    f = events.feature[i]
    if graph.feature_known[v, f] and events.time[i] < graph.feature_time[v, f]:
        return _LATE
    graph.feature_known[v, f] = 1
    graph.feature_time[v, f] = events.time[i]
    out.feature_vertex[out.counts[N_FEATURE]] = v
    out.feature_event[out.counts[N_FEATURE]] = i
    out.counts[N_FEATURE] += 1
    return _APPLIED


@lean
def _label_event(i: int, events: Events, graph: Graph) -> int:
    code = events.src[i]
    if events.op[i] == _DELETE:
        if code < 0 or graph.label_state[code] != _HERE:
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


@lean
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
    r = np.int64(-1)
    if exists and rules.mode != APPEND:
        at = place_of(records, u, v, events.key[i])
        r = np.int64(records.table[at]) - 1
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


@lean
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
        part = np.int64(events.part[i])
    else:
        part = np.int64(
            choose(
                rules.partitioner, u, v, graph.hashes[from_code], graph.hashes[to_code], graph.placement,
                rules.first_weight, rules.second_weight,
            )
        )  # fmt: skip
    if new_u:
        _settle(u, part, graph, out)
    if new_v:
        _settle(v, part, graph, out)
    graph.placement.degree[u] += 1
    graph.placement.degree[v] += 1
    graph.placement.load[part] += 1
    u_replica, v_replica = _replica(u, part, graph, out), _replica(v, part, graph, out)
    _make_source(u_replica, u, graph, out)
    if not rules.directed:
        _make_source(v_replica, v, graph, out)
    a = out.counts[N_ADD]
    out.counts[N_ADD] += 1
    if rules.mode == APPEND:
        out.add_record[a] = -2  # there are no records
        out.add_slot[a] = graph.next_edge[part]
        graph.next_edge[part] += 1
    else:
        r = new_record(records, part, graph.free_edge, graph.next_edge)
        if older < 0:
            if new_u or new_v:
                at = place_of(records, u, v, events.key[i])
            records.counters[COUNT] += 1
        records.u[r], records.v[r], records.key[r] = u, v, events.key[i]
        records.older[r] = older + 1
        records.added[r] = a + 1
        records.table[at] = r + 1
        out.add_record[a] = r
        out.add_slot[a] = records.slot[r]
        if _has_value(i, events):
            _set_edge_feature(i, r, events, rules, records, out)
    out.add_part[a] = part
    out.add_u[a], out.add_v[a] = u, v
    out.add_u_replica[a], out.add_v_replica[a] = u_replica, v_replica
    out.add_event[a] = i


@lean
def _remove_edge(
    i: int, at: np.uint64, r: int, graph: Graph, records: EdgeRecords, out: Decisions
) -> None:
    if records.older[r] > 0:
        records.table[at] = records.older[r]
    else:
        vacate(records, at)
    part = records.part[r]
    graph.placement.load[part] -= 1
    if records.added[r] > 0:
        out.add_record[records.added[r] - 1] = -1
    else:
        n = out.counts[N_REMOVE]
        out.counts[N_REMOVE] += 1
        out.remove_part[n], out.remove_slot[n], out.remove_event[n] = part, records.slot[r], i
        out.remove_loop[n] = 1 if records.u[r] == records.v[r] else 0
    free_record(records, r, graph.free_edge)


@lean
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
    out.edge_feature_record[out.counts[N_EDGE_FEATURE]] = r
    out.edge_feature_event[out.counts[N_EDGE_FEATURE]] = i
    out.counts[N_EDGE_FEATURE] += 1
    return _APPLIED
