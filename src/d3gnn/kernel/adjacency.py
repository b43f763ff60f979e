"""The edges of one part, by source and by destination: amortised O(1) insert and delete.

An edge has a slot, which Partition chose. For each direction, the edges of a vertex are contiguous in a
pool: a segment that moves to the pool's end, with twice the room, when it is full. The gaps that moved
segments leave are removed once they are more than a third of the pool.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from d3gnn.kernel.arrays import reserve_all
from d3gnn.kernel.compiled import inlined, lean
from d3gnn.kernel.mapped_state import peek_counters
from d3gnn.kernel.part_state import PartState
from d3gnn.kernel.prefetch import AHEAD, fetch
from d3gnn.types import Bools, Ints, Ints32

# Columns of the edges, by edge slot: the two ends, and where in its out- and in-segment the edge is, plus 1
# (0: no edge here).
SRC, DST, OUT_PLACE, IN_PLACE = range(4)
# Columns of a side's segments, by vertex.
BEGIN, LENGTH, ROOM = range(3)
# Columns of a side's pool: the vertex at the other end, and the edge's slot.
OTHER, EDGE = range(2)

_SMALLEST_ROOM = 4
_COMPACT_FROM = 4096
_MOST = 2**31 - 1


class Side(NamedTuple):
    """One direction: v has `segments[v, LENGTH]` edges, from `segments[v, BEGIN]` on in the pool."""

    segments: Ints32
    pool: Ints32


class Removed(NamedTuple):
    """Removed edges, with the event time and arrival of the cause."""

    src: Ints32
    dst: Ints32
    slot: Ints32
    time: Ints
    arrival: Ints


_COUNTERS = "adjacency"


def peek_edge_count(folder: str | Path) -> int:
    """The number of edges in a folder of mapped state, without opening it; 0 if there is no adjacency."""
    counters = peek_counters(folder, _COUNTERS)
    return 0 if counters is None else int(counters[2])


class Adjacency:
    """Out- and in-lists over the vertex slots of one part."""

    def __init__(self, part_state: PartState) -> None:
        self.part_state, self._generation = part_state, -1
        self._counters = part_state.counters(_COUNTERS, 3)  # pool in use (out, in), live edges
        self._edges = part_state.array("edges", np.int32, 4)
        self._segments = [part_state.array(f"{name}_segments", np.int32, 3) for name in ("out", "in")]
        self._pools = [part_state.array(f"{name}_pool", np.int32, 2) for name in ("out", "in")]
        self.reserve(1, 1)

    @property
    def out(self) -> Side:
        """By source: OTHER is the destination."""
        return self._sides()[0]

    @property
    def into(self) -> Side:
        """By destination: OTHER is the source."""
        return self._sides()[1]

    def _sides(self) -> tuple[Side, Side]:
        if self._generation != self.part_state.generation:
            (out, into), (out_pool, in_pool) = self._segments, self._pools
            self._views = Side(out.data, out_pool.data), Side(into.data, in_pool.data)
            self._generation = self.part_state.generation
        return self._views

    @property
    def edge_count(self) -> int:
        return int(self._counters[2])

    def reserve(self, vertices: int, edges: int) -> None:
        """Make room for vertex slots and edge slots below these."""
        if vertices > len(self._segments[0].data):
            reserve_all(self._segments, vertices)
        if edges > len(self._edges.data):
            self._edges.reserve(edges)

    def add(self, slots: Ints32, src: Ints32, dst: Ints32) -> None:
        """Add edges at their slots, which are free."""
        done = self._insert(0, slots, src, dst)
        while done < len(slots):
            self._make_room(src[done:], dst[done:])
            done = self._insert(done, slots, src, dst)

    def _insert(self, first: int, slots: Ints32, src: Ints32, dst: Ints32) -> int:
        """Add the edges from the first on, as far as there is room; returns how many are added then."""
        out, into = self._sides()
        return _insert(first, slots, src, dst, self._edges.data, *out, *into, self._counters)

    def _make_room(self, src: Ints32, dst: Ints32) -> None:
        """Make room in the pools for these edges."""
        for k, ends in enumerate((src, dst)):
            wanted, pool = _room_wanted(ends, self._segments[k].data), self._pools[k]
            if int(self._counters[k]) + wanted > len(pool.data):
                needed = self._compact(k, wanted) + wanted
                if needed > _MOST:
                    raise OverflowError(f"one part cannot hold {len(src):,} more edges: use more parts")
                pool.reserve(needed)

    def remove(
        self, slots: Ints32, slot_time: Ints, slot_arrival: Ints,
        leaving: Ints32, leaving_time: Ints, leaving_arrival: Ints,
    ) -> Removed:  # fmt: skip
        """Remove the edges at `slots`, if there are any, and then all that are left at the `leaving`
        vertices.
        """
        out, into = self.out, self.into
        bound = len(slots)
        if len(leaving):
            bound += int(out.segments[leaving, LENGTH].sum(dtype=np.int64))
            bound += int(into.segments[leaving, LENGTH].sum(dtype=np.int64))
        src, dst, gone = (np.empty(bound, np.int32) for _ in range(3))
        time, arrival = np.empty(bound, np.int64), np.empty(bound, np.int64)
        count = _remove(
            slots, slot_time, slot_arrival, leaving, leaving_time, leaving_arrival, self._edges.data,
            *out, *into, src, dst, gone, time, arrival,
        )  # fmt: skip
        self._counters[2] -= count
        for side in (out, into):
            side.segments[leaving, ROOM] = 0  # their segments are gaps from now on
        return Removed(src[:count], dst[:count], gone[:count], time[:count], arrival[:count])

    def hide(self, slots: Ints32, src: Ints32, dst: Ints32) -> None:
        """Leave out the edges that were added last, until `show`: nothing may change the edges meanwhile."""
        out, into = self._sides()
        _leave_out(1, slots, src, dst, self._edges.data, out.segments, into.segments, self._counters)

    def show(self, slots: Ints32, src: Ints32, dst: Ints32) -> None:
        """Take hidden edges in again."""
        out, into = self._sides()
        _leave_out(-1, slots, src, dst, self._edges.data, out.segments, into.segments, self._counters)

    def ends(self, slots: Ints32) -> tuple[Ints32, Ints32, Bools]:
        """Source and destination of the edges at these slots, and whether there is one."""
        edges = self._edges.data[slots]
        return edges[:, SRC], edges[:, DST], edges[:, IN_PLACE] > 0

    def _compact(self, k: int, wanted: int) -> int:
        """Remove the gaps of one pool if they are more than a third of it; returns how much of it is in use
        then.
        """
        used, segments = int(self._counters[k]), self._segments[k].data
        in_use = int(segments[:, ROOM].sum(dtype=np.int64))
        if used + wanted < _COMPACT_FROM or 3 * in_use > 2 * used:
            return used
        _compact(np.argsort(segments[:, BEGIN], kind="stable"), segments, self._pools[k].data)
        self._counters[k] = in_use
        return in_use


@inlined
def _room_for(length: int) -> int:
    """The room of a segment of this length."""
    room = _SMALLEST_ROOM
    while room < length:
        room *= 2
    return room


@lean
def _room_wanted(vertices: Ints32, segments: Ints32) -> int:
    """How much pool is needed to move the segments that these inserts overflow. Changes nothing."""
    wanted = 0
    for v in vertices:
        segments[v, LENGTH] += 1
        length, room = segments[v, LENGTH], segments[v, ROOM]
        if length > room:
            # The first overflow of v in this batch, or one past a room already counted: as in `_widen`.
            fresh = _room_for(length)
            if length == room + 1 or (fresh > _SMALLEST_ROOM and fresh // 2 + 1 == length):
                wanted += fresh
    for v in vertices:
        segments[v, LENGTH] -= 1
    return wanted


@lean
def _insert(
    first: int, slots: Ints32, src: Ints32, dst: Ints32, edges: Ints32, out_segments: Ints32,
    out_pool: Ints32, in_segments: Ints32, in_pool: Ints32, counters: Ints,
) -> int:  # fmt: skip
    last = len(slots) - 1
    for i in range(first, len(slots)):
        far, near = min(last, i + 2 * AHEAD), min(last, i + AHEAD)
        fetch(out_segments, src[far])
        fetch(in_segments, dst[far])
        fetch(out_pool, out_segments[src[near], BEGIN] + out_segments[src[near], LENGTH])
        fetch(in_pool, in_segments[dst[near], BEGIN] + in_segments[dst[near], LENGTH])
        u, v, slot = src[i], dst[i], slots[i]
        if not _widen(u, out_segments, out_pool, counters, 0):
            return i
        if not _widen(v, in_segments, in_pool, counters, 1):
            return i
        edges[slot, SRC], edges[slot, DST] = u, v
        edges[slot, OUT_PLACE] = _append(u, v, slot, out_segments, out_pool)
        edges[slot, IN_PLACE] = _append(v, u, slot, in_segments, in_pool)
        counters[2] += 1
    return len(slots)


@inlined
def _widen(v: int, segments: Ints32, pool: Ints32, counters: Ints, k: int) -> bool:
    """Move a full segment to the pool's end, with more room; returns whether the pool has that room."""
    length = segments[v, LENGTH]
    if length < segments[v, ROOM]:
        return True
    used, fresh = counters[k], _room_for(length + 1)
    if used + fresh > len(pool):
        return False
    begin = segments[v, BEGIN]
    for j in range(length):
        pool[used + j, OTHER] = pool[begin + j, OTHER]
        pool[used + j, EDGE] = pool[begin + j, EDGE]
    segments[v, BEGIN], segments[v, ROOM] = used, fresh
    counters[k] = used + fresh
    return True


@inlined
def _append(v: int, other: int, slot: int, segments: Ints32, pool: Ints32) -> int:
    """Append an edge to a segment that has room; returns its place there plus 1."""
    length = segments[v, LENGTH]
    at = segments[v, BEGIN] + length
    pool[at, OTHER], pool[at, EDGE] = other, slot
    segments[v, LENGTH] = length + 1
    return length + 1  # type: ignore[no-any-return]


@inlined
def _remove_from(slot: int, v: int, edges: Ints32, place: int, segments: Ints32, pool: Ints32) -> None:
    """Close the gap with the segment's last edge."""
    at = segments[v, BEGIN] + edges[slot, place] - 1
    last = segments[v, BEGIN] + segments[v, LENGTH] - 1
    moved = pool[last, EDGE]
    pool[at, EDGE] = moved
    pool[at, OTHER] = pool[last, OTHER]
    edges[moved, place] = edges[slot, place]
    edges[slot, place] = 0
    segments[v, LENGTH] -= 1


@lean
def _remove(
    slots: Ints32, slot_time: Ints, slot_arrival: Ints, leaving: Ints32, leaving_time: Ints,
    leaving_arrival: Ints, edges: Ints32, out_segments: Ints32, out_pool: Ints32, in_segments: Ints32,
    in_pool: Ints32, src: Ints32, dst: Ints32, gone: Ints32, time: Ints, arrival: Ints,
) -> int:  # fmt: skip
    count = 0
    for i in range(len(slots)):
        slot = slots[i]
        if edges[slot, IN_PLACE] == 0:
            continue
        src[count], dst[count], gone[count] = edges[slot, SRC], edges[slot, DST], slot
        time[count], arrival[count] = slot_time[i], slot_arrival[i]
        count += 1
        _remove_from(slot, edges[slot, SRC], edges, OUT_PLACE, out_segments, out_pool)
        _remove_from(slot, edges[slot, DST], edges, IN_PLACE, in_segments, in_pool)
    for i in range(len(leaving)):
        v = leaving[i]
        while out_segments[v, LENGTH] + in_segments[v, LENGTH] > 0:
            if out_segments[v, LENGTH] > 0:
                slot = out_pool[out_segments[v, BEGIN] + out_segments[v, LENGTH] - 1, EDGE]
            else:
                slot = in_pool[in_segments[v, BEGIN] + in_segments[v, LENGTH] - 1, EDGE]
            src[count], dst[count], gone[count] = edges[slot, SRC], edges[slot, DST], slot
            time[count], arrival[count] = leaving_time[i], leaving_arrival[i]
            count += 1
            _remove_from(slot, edges[slot, SRC], edges, OUT_PLACE, out_segments, out_pool)
            _remove_from(slot, edges[slot, DST], edges, IN_PLACE, in_segments, in_pool)
    return count


@lean
def _leave_out(
    sign: int, slots: Ints32, src: Ints32, dst: Ints32, edges: Ints32, out_segments: Ints32,
    in_segments: Ints32, counters: Ints,
) -> None:  # fmt: skip
    """Shorten the segments by the edges that were added last, which are at their ends (1), or undo it (-1).

    A negative place stands for an edge that is not here at the moment.
    """
    last = len(slots) - 1
    for i in range(len(slots)):
        next = min(last, i + AHEAD)
        fetch(out_segments, src[next])
        fetch(in_segments, dst[next])
        out_segments[src[i], LENGTH] -= sign
        in_segments[dst[i], LENGTH] -= sign
        edges[slots[i], IN_PLACE] = -edges[slots[i], IN_PLACE]
    counters[2] -= sign * len(slots)


@lean
def _compact(order: Ints, segments: Ints32, pool: Ints32) -> None:
    used = 0
    for v in order:
        if segments[v, ROOM] == 0:
            continue
        begin = segments[v, BEGIN]
        if begin != used:
            for j in range(segments[v, LENGTH]):
                pool[used + j, OTHER] = pool[begin + j, OTHER]
                pool[used + j, EDGE] = pool[begin + j, EDGE]
            segments[v, BEGIN] = used
        used += segments[v, ROOM]
