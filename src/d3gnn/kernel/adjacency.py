"""The edges of one part, by source and by destination: amortised O(1) insert and delete.

An edge lies at a slot that Partition chose. For each direction, the edges of a vertex lie side by side in a
pool: a segment that moves to the pool's end, with twice the room, when it is full. What moved segments leave
behind is squeezed out once it is more than half of the pool.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from d3gnn.kernel.arrays import Space
from d3gnn.kernel.compiled import lean
from d3gnn.types import Ints, Ints32

_SMALLEST_ROOM = 4
_SQUEEZE_FROM = 4096


class Side(NamedTuple):
    """One direction: the edges of vertex v are at `begin[v] : begin[v] + length[v]` of the pool."""

    begin: Ints
    length: Ints32
    room: Ints32
    other: Ints32  # pool: the vertex at the other end
    edge: Ints32  # pool: the edge's slot
    place: Ints32  # by edge slot: where in its segment it is, plus 1; 0 for no edge


class Removed(NamedTuple):
    """Edges that went, with the event time and arrival of what removed them."""

    src: Ints32
    dst: Ints32
    time: Ints
    arrival: Ints


class _SideArrays:
    """The arrays behind one `Side`."""

    def __init__(self, space: Space, name: str) -> None:
        dtypes = (np.int64, *[np.int32] * 5)
        fields = zip(Side._fields, dtypes, strict=True)
        self._arrays = [space.array(f"{name}_{field}", dtype) for field, dtype in fields]

    def reserve(self, vertices: int, edges: int) -> None:
        for array in self._arrays[:3]:
            array.reserve(vertices)
        self._arrays[5].reserve(edges)

    def reserve_pool(self, length: int) -> None:
        for array in self._arrays[3:5]:
            array.reserve(length)

    def view(self) -> Side:
        return Side(*(array.data for array in self._arrays))


class Adjacency:
    """Out- and in-lists over the vertex slots of one part; `counters` are three of the space's."""

    def __init__(self, space: Space, counters: Ints) -> None:
        self._space = space
        self._counters = counters  # pool in use (out, in), live edges
        self._src = space.array("edge_src", np.int32)
        self._dst = space.array("edge_dst", np.int32)
        self._sides = [_SideArrays(space, "out"), _SideArrays(space, "in")]
        self._generation = -1
        self.reserve(1, 1)

    @property
    def out(self) -> Side:
        """By source: `other` is the destination."""
        return self._views()[0]

    @property
    def into(self) -> Side:
        """By destination: `other` is the source."""
        return self._views()[1]

    @property
    def edge_count(self) -> int:
        return int(self._counters[2])

    def reserve(self, vertices: int, edges: int) -> None:
        """Make room for vertex slots and edge slots below these."""
        if vertices > len(self.out.length) or edges > len(self._src.data):
            for side in self._sides:
                side.reserve(vertices, edges)
            self._src.reserve(edges)
            self._dst.reserve(edges)

    def add(self, slots: Ints32, src: Ints32, dst: Ints32) -> None:
        """Put edges into their slots, which are free."""
        out, into = self._views()
        wanted = _rooms_wanted(src, dst, out.length, out.room, into.length, into.room)
        for k, side in enumerate((out, into)):
            if int(self._counters[k]) + wanted[k] > len(side.other):
                self._sides[k].reserve_pool(self._squeeze(k, wanted[k]) + wanted[k])
        out, into = self._views()
        _insert_both(slots, src, dst, self._src.data, self._dst.data, out, into, self._counters)

    def remove(
        self, slots: Ints32, slot_time: Ints, slot_arrival: Ints,
        leaving: Ints32, leaving_time: Ints, leaving_arrival: Ints,
    ) -> Removed:  # fmt: skip
        """Take out the edges at `slots` and then every edge that is left of the `leaving` vertices."""
        out, into = self._views()
        bound = len(slots)
        if len(leaving):
            bound += int(out.length[leaving].sum(dtype=np.int64) + into.length[leaving].sum(dtype=np.int64))
        removed = Removed(
            np.empty(bound, np.int32), np.empty(bound, np.int32),
            np.empty(bound, np.int64), np.empty(bound, np.int64),
        )  # fmt: skip
        if bound == 0:
            return removed
        count = _remove(
            slots, slot_time, slot_arrival, leaving, leaving_time, leaving_arrival,
            self._src.data, self._dst.data, out, into, removed,
        )  # fmt: skip
        self._counters[2] -= count
        for side in (out, into):
            side.room[leaving] = 0  # their segments are gaps from now on
        src, dst, time, arrival = removed
        return Removed(src[:count], dst[:count], time[:count], arrival[:count])

    def _views(self) -> tuple[Side, Side]:
        if self._generation != self._space.generation:
            self._cached = self._sides[0].view(), self._sides[1].view()
            self._generation = self._space.generation
        return self._cached

    def _squeeze(self, k: int, wanted: int) -> int:
        """Drop the gaps of one pool if they are more than half of it; how much of it is then in use."""
        used = int(self._counters[k])
        side = self._views()[k]
        in_use = int(side.room.sum(dtype=np.int64))
        if used + wanted < _SQUEEZE_FROM or 2 * in_use > used:
            return used
        order = np.argsort(side.begin, kind="stable")
        _squeeze(order, side)
        self._counters[k] = in_use
        return in_use


@lean
def _room_wanted(vertices: Ints32, length: Ints32, room: Ints32) -> int:
    """How much pool it takes to move the segments that these inserts overflow. Leaves no trace."""
    wanted = 0
    for v in vertices:
        length[v] += 1
        if length[v] > room[v]:
            # The first overflow of v in this batch, or one past a room already counted: as in `_insert`.
            fresh = _SMALLEST_ROOM
            while fresh < length[v]:
                fresh *= 2
            if length[v] == room[v] + 1 or (fresh > _SMALLEST_ROOM and fresh // 2 + 1 == length[v]):
                wanted += fresh
    for v in vertices:
        length[v] -= 1
    return wanted


@lean
def _rooms_wanted(
    src: Ints32, dst: Ints32, out_length: Ints32, out_room: Ints32, in_length: Ints32, in_room: Ints32
) -> tuple[int, int]:
    return _room_wanted(src, out_length, out_room), _room_wanted(dst, in_length, in_room)


@lean
def _insert_both(
    slots: Ints32, src: Ints32, dst: Ints32, edge_src: Ints32, edge_dst: Ints32, out: Side, into: Side,
    counters: Ints,
) -> None:  # fmt: skip
    counters[0] = _insert(slots, src, dst, out, counters[0])
    counters[1] = _insert(slots, dst, src, into, counters[1])
    for i in range(len(slots)):
        edge_src[slots[i]], edge_dst[slots[i]] = src[i], dst[i]
    counters[2] += len(slots)


@lean
def _insert(slots: Ints32, vertices: Ints32, others: Ints32, side: Side, used: int) -> int:
    for i in range(len(slots)):
        v = vertices[i]
        if side.length[v] == side.room[v]:
            fresh = _SMALLEST_ROOM
            while fresh < side.length[v] + 1:
                fresh *= 2
            begin = side.begin[v]
            for j in range(side.length[v]):
                side.other[used + j] = side.other[begin + j]
                side.edge[used + j] = side.edge[begin + j]
            side.begin[v] = used
            side.room[v] = fresh
            used += fresh
        at = side.begin[v] + side.length[v]
        side.other[at] = others[i]
        side.edge[at] = slots[i]
        side.length[v] += 1
        side.place[slots[i]] = side.length[v]
    return used


@lean
def _take_out(slot: int, v: int, side: Side) -> None:
    """Close the gap with the segment's last edge."""
    at = side.begin[v] + side.place[slot] - 1
    last = side.begin[v] + side.length[v] - 1
    moved = side.edge[last]
    side.edge[at] = moved
    side.other[at] = side.other[last]
    side.place[moved] = side.place[slot]
    side.place[slot] = 0
    side.length[v] -= 1


@lean
def _remove(
    slots: Ints32, slot_time: Ints, slot_arrival: Ints, leaving: Ints32, leaving_time: Ints,
    leaving_arrival: Ints, src: Ints32, dst: Ints32, out: Side, into: Side, removed: Removed,
) -> int:  # fmt: skip
    count = 0
    for i in range(len(slots)):
        slot = slots[i]
        removed.src[count], removed.dst[count] = src[slot], dst[slot]
        removed.time[count], removed.arrival[count] = slot_time[i], slot_arrival[i]
        count += 1
        _take_out(slot, src[slot], out)
        _take_out(slot, dst[slot], into)
    for i in range(len(leaving)):
        v = leaving[i]
        while out.length[v] + into.length[v] > 0:
            if out.length[v] > 0:
                slot = out.edge[out.begin[v] + out.length[v] - 1]
            else:
                slot = into.edge[into.begin[v] + into.length[v] - 1]
            removed.src[count], removed.dst[count] = src[slot], dst[slot]
            removed.time[count], removed.arrival[count] = leaving_time[i], leaving_arrival[i]
            count += 1
            _take_out(slot, src[slot], out)
            _take_out(slot, dst[slot], into)
    return count


@lean
def _squeeze(order: Ints, side: Side) -> None:
    used = 0
    for v in order:
        if side.room[v] == 0:
            continue
        begin = side.begin[v]
        if begin != used:
            for j in range(side.length[v]):
                side.other[used + j] = side.other[begin + j]
                side.edge[used + j] = side.edge[begin + j]
            side.begin[v] = used
        used += side.room[v]
