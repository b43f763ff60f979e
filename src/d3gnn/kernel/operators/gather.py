"""Compiled loops that turn lists of decisions into columns, grouped by receiving part.

Python allocates the columns and compiled code fills them, which takes half the time of allocating them here.
`ends` comes in as zeros, one more than there are parts, and goes out as the end of each part's rows and their
total. Rows of vertices that were deleted later in the batch are left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from d3gnn.kernel.compiled import compiled, inlined, lean
from d3gnn.kernel.operators.decisions import N_ADDS, N_REPLICAS, N_SOURCES, N_VERTICES, REMOVED, Adds, named
from d3gnn.kernel.partitioners.base import (
    CODE,
    FIRST_REPLICA,
    MASTER_PART,
    MASTER_ROW,
    NEXT_REPLICA,
    REPLICA_PART,
    REPLICA_SLOT,
)
from d3gnn.types import Array, Bools, Floats, Hashes, Ints, Ints32


@lean
def gather_vertices(
    first: int, counts: Ints, rows: Ints32, live: Ints32, vertices: Ints32, replicas: Ints32, hashes: Hashes,
    time: Ints, arrival: Ints,
    ends: Ints, code: Ints32, row: Ints32, slot: Ints32, seed: Hashes, out_time: Ints, out_arrival: Ints,
) -> None:  # fmt: skip
    """New vertices, numbered from `first`, by the part of their master."""
    n, events = counts[N_VERTICES], named(counts, rows).vertices.event
    for v in range(first, first + n):
        ends[_live_part(v, live, vertices) + 1] += 1
    _to_begins(ends)
    for i in range(n):
        v, event = first + i, events[i]
        part = _live_part(v, live, vertices)
        if part < 0:
            continue
        at = ends[part]
        ends[part] += 1
        code[at], row[at], seed[at] = vertices[v, CODE], vertices[v, MASTER_ROW], hashes[vertices[v, CODE]]
        out_time[at], out_arrival[at] = time[event], arrival[event]
        replica = vertices[v, FIRST_REPLICA] - 1
        while replicas[replica, REPLICA_PART] != part:
            replica = replicas[replica, NEXT_REPLICA] - 1
        slot[at] = replicas[replica, REPLICA_SLOT]


@lean
def gather_replicas(
    first: int, counts: Ints, rows: Ints32, live: Ints32, vertices: Ints32, replicas: Ints32,
    ends: Ints, slot: Ints32, master: Ints32, row: Ints32,
) -> None:  # fmt: skip
    """New replicas, numbered from `first`, by their part."""
    n, vertex = counts[N_REPLICAS], named(counts, rows).replicas.vertex
    for i in range(n):
        is_live = _live_part(vertex[i], live, vertices) >= 0
        ends[replicas[first + i, REPLICA_PART] + 1 if is_live else 0] += 1
    _to_begins(ends)
    for i in range(n):
        v, part = vertex[i], replicas[first + i, REPLICA_PART]
        if _live_part(v, live, vertices) >= 0:
            at = ends[part]
            ends[part] += 1
            slot[at], master[at] = replicas[first + i, REPLICA_SLOT], vertices[v, MASTER_PART]
            row[at] = vertices[v, MASTER_ROW]


@lean
def gather_sources(
    counts: Ints, rows: Ints32, live: Ints32, vertices: Ints32, replicas: Ints32,
    ends: Ints, row: Ints32, part: Ints32, slot: Ints32,
) -> None:  # fmt: skip
    """New sources, by the part of their master."""
    n, sources = counts[N_SOURCES], named(counts, rows).sources
    for i in range(n):
        ends[_live_part(sources.vertex[i], live, vertices) + 1] += 1
    _to_begins(ends)
    for i in range(n):
        v, replica = sources.vertex[i], sources.replica[i]
        master_part = _live_part(v, live, vertices)
        if master_part >= 0:
            at = ends[master_part]
            ends[master_part] += 1
            row[at] = vertices[v, MASTER_ROW]
            part[at], slot[at] = replicas[replica, REPLICA_PART], replicas[replica, REPLICA_SLOT]


@lean
def gather_adds(
    directed: bool, deletes: bool, counts: Ints, rows: Ints32, live: Ints32, vertices: Ints32,
    replicas: Ints32, time: Ints, arrival: Ints,
    ends: Ints, slot: Ints32, src: Ints32, dst: Ints32, out_time: Ints, out_arrival: Ints,
) -> None:  # fmt: skip
    """New edges, by their part; an undirected edge becomes two directed ones.

    `deletes` is whether the batch may have deleted any of them again.
    """
    n, adds = counts[N_ADDS], named(counts, rows).adds
    for i in range(n):
        if not deletes or _survives(i, adds, live, vertices):
            is_loop = adds.u[i] == adds.v[i]
            ends[adds.part[i] + 1] += 1 if directed or is_loop else 2
    _to_begins(ends)
    for i in range(n):
        if deletes and not _survives(i, adds, live, vertices):
            continue
        part, event = adds.part[i], adds.event[i]
        u, v = replicas[adds.u_replica[i], REPLICA_SLOT], replicas[adds.v_replica[i], REPLICA_SLOT]
        for direction in range(1 if directed or u == v else 2):
            at = ends[part]
            ends[part] += 1
            slot[at] = adds.slot[i] if directed else 2 * adds.slot[i] + direction
            src[at], dst[at] = (u, v) if direction == 0 else (v, u)
            out_time[at], out_arrival[at] = time[event], arrival[event]


@lean
def gather_survivors(counts: Ints, rows: Ints32, live: Ints32, vertices: Ints32, survives: Bools) -> None:
    """Whether each added edge exists at the end of the batch."""
    adds = named(counts, rows).adds
    for i in range(counts[N_ADDS]):
        survives[i] = _survives(i, adds, live, vertices)


@inlined
def _survives(i: int, adds: Adds, live: Ints32, vertices: Ints32) -> bool:
    u, v = adds.u[i], adds.v[i]
    ends_live = live[vertices[u, CODE]] - 1 == u and live[vertices[v, CODE]] - 1 == v
    return bool(ends_live and adds.record[i] != REMOVED)


@lean
def gather_parts(first_vertex: int, counts: Ints, rows: Ints32, vertices: Ints32, part: Ints32) -> None:
    """The part that each event chose: that of the vertex or edge that it created; -1 for others."""
    out = named(counts, rows)
    for i in range(len(part)):
        part[i] = -1
    for i in range(counts[N_VERTICES]):
        part[out.vertices.event[i]] = vertices[first_vertex + i, MASTER_PART]
    for i in range(counts[N_ADDS]):
        part[out.adds.event[i]] = out.adds.part[i]


@inlined
def _live_part(v: int, live: Ints32, vertices: Ints32) -> int:
    """The part of a vertex's master; -1 if the vertex was deleted."""
    return vertices[v, MASTER_PART] if live[vertices[v, CODE]] - 1 == v else -1


@compiled
def live_parts(vertex: Array, live: Ints32, vertices: Ints32) -> Ints32:
    """The part of each vertex's master; -1 for deleted vertices."""
    part = np.empty(len(vertex), np.int32)
    for i in range(len(vertex)):
        part[i] = _live_part(vertex[i], live, vertices)
    return part


@compiled
def replicas_of(vertex: Ints32, vertices: Ints32, replicas: Ints32, below: int) -> tuple[Ints, Ints]:
    """Replicas with numbers below `below`: position in `vertex`, and number of the replica."""
    count = 0
    for v in vertex:
        at = vertices[v, FIRST_REPLICA] - 1
        while at >= 0:
            count += 1 if at < below else 0
            at = replicas[at, NEXT_REPLICA] - 1
    position, replica = np.empty(count, np.int64), np.empty(count, np.int64)
    count = 0
    for i in range(len(vertex)):
        at = vertices[vertex[i], FIRST_REPLICA] - 1
        while at >= 0:
            if at < below:
                position[count], replica[count] = i, at
                count += 1
            at = replicas[at, NEXT_REPLICA] - 1
    return position, replica


@compiled
def group_by_part(part: Ints32, parts: int) -> tuple[Ints, Ints]:
    """Positions sorted by part, stable and without those of part -1; and the end of each part's positions."""
    ends = np.zeros(parts + 1, np.int64)
    for p in part:
        ends[p + 1] += 1
    _to_begins(ends)
    order = np.empty(ends[parts], np.int64)
    for i in range(len(part)):
        p = part[i]
        if p >= 0:
            order[ends[p]] = i
            ends[p] += 1
    return order, ends[:parts]


@inlined
def _to_begins(ends: Ints) -> None:
    """From the number of rows of each part, shifted by one, to where each part's rows begin."""
    ends[0] = 0
    for p in range(1, len(ends)):
        ends[p] += ends[p - 1]


@compiled
def padded_values(event: Ints32, values: Floats, offsets: Ints, width: int) -> Any:
    """The values of events as rows of this width, padded with zeros."""
    out = np.zeros((len(event), width), np.float32)
    if len(offsets):
        for i in range(len(event)):
            begin, end = offsets[event[i]], offsets[event[i] + 1]
            out[i, : end - begin] = values[begin:end]
    return out
