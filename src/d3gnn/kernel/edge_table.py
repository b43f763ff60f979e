"""Which edges exist: (u, v, key) to a record, which is a fixed slot in a fixed part.

Vertex ids are never reused, so the records of a deleted vertex's edges can never be found again. They stay
where they are until the table is built anew, and cost the deletion nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from d3gnn.kernel.arrays import Space
from d3gnn.kernel.compiled import compiled, lean
from d3gnn.kernel.hashing import mix
from d3gnn.types import Bytes, Floats, Ints, Ints32

COUNT, USED = 0, 1


class EdgeRecords(NamedTuple):
    """Views: the table, and the records by number."""

    table: Ints32  # open addressing, linear probing: record plus 1, 0 for empty
    u: Ints32  # -1 in a free record
    v: Ints32
    key: Ints
    part: Ints32
    slot: Ints32
    older: Ints32  # the next older copy of the edge, plus 1; in a free record the next free one
    added: Ints32  # place among the adds of this batch, plus 1
    value: Floats
    value_time: Ints
    value_known: Bytes
    counters: Ints  # entries in the table, records in use or free


class EdgeTable:
    """The records in their space; `features` and `width` are those of the edges' features."""

    def __init__(self, space: Space, counters: Ints, features: int, width: int) -> None:
        self._space, self._counters = space, counters
        self._table = space.array("edge_table", np.int32)
        names = ("u", "v", "key", "part", "slot", "older", "added")
        self._columns = [
            *(space.array(f"edge_{n}", np.int64 if n == "key" else np.int32) for n in names),
            space.array("edge_value", np.float32, width),
            space.array("edge_value_time", np.int64, features),
            space.array("edge_value_known", np.uint8, features),
        ]
        self._generation = -1

    def views(self) -> EdgeRecords:
        if self._generation != self._space.generation:
            columns = (column.data for column in self._columns)
            self._views = EdgeRecords(self._table.data, *columns, self._counters)
            self._generation = self._space.generation
        return self._views

    def reserve(self, more: int, live: Ints32, code: Ints32, free: Ints) -> None:
        """Room for so many more edges; `live` and `code` tell which vertices still exist."""
        needed = int(self._counters[COUNT]) + more
        if 2 * needed > len(self._table.data):
            self._reclaim(more, live, code, free)
        for column in self._columns:
            column.reserve(int(self._counters[USED]) + more)

    def _reclaim(self, more: int, live: Ints32, code: Ints32, free: Ints) -> None:
        """Free the records whose vertices are gone and build the table anew."""
        if len(self._table.data):
            kept = _free_dead(self.views(), live, code, free)
        else:
            kept = 0
        self._table.reserve(1 << int(4 * (kept + more) - 1).bit_length())
        self._table.clear()
        _rebuild(self.views())


@lean
def place_of(records: EdgeRecords, u: int, v: int, key: int) -> np.uint64:
    """Where in the table (u, v, key) is, or would be."""
    mask = np.uint64(1)
    while mask * np.uint64(2) <= np.uint64(len(records.table)):
        mask *= np.uint64(2)
    mask -= np.uint64(1)
    at = _hash(u, v, key) & mask
    while records.table[at] != 0:
        r = records.table[at] - 1
        if records.u[r] == u and records.v[r] == v and records.key[r] == key:
            break
        at = (at + np.uint64(1)) & mask
    return at


@lean
def _hash(u: int, v: int, key: int) -> np.uint64:
    h = mix((np.uint64(u) << np.uint64(32)) | np.uint64(v))
    return mix(h ^ np.uint64(key)) if key != 0 else h


@lean
def vacate(records: EdgeRecords, at: np.uint64) -> None:
    """Empty a place and move up what had to step over it, so that no gravestones are left."""
    mask = np.uint64(1)
    while mask * np.uint64(2) <= np.uint64(len(records.table)):
        mask *= np.uint64(2)
    mask -= np.uint64(1)
    gap = at
    records.counters[COUNT] -= 1
    while True:
        at = (at + np.uint64(1)) & mask
        r = records.table[at] - 1
        if r < 0:
            break
        home = _hash(records.u[r], records.v[r], records.key[r]) & mask
        if ((at - home) & mask) >= ((at - gap) & mask):
            records.table[gap] = r + 1
            gap = at
    records.table[gap] = 0


@lean
def new_record(records: EdgeRecords, part: int, free: Ints, next_slot: Ints) -> int:
    """A free record of this part, with its slot; or a new one."""
    r = free[part] - 1
    if r >= 0:
        free[part] = records.older[r]
    else:
        r = records.counters[USED]
        records.counters[USED] += 1
        records.part[r] = part
        records.slot[r] = next_slot[part]
        next_slot[part] += 1
    for f in range(records.value_known.shape[1]):
        records.value_known[r, f] = 0
    return r  # type: ignore[no-any-return]


@lean
def free_record(records: EdgeRecords, r: int, free: Ints) -> None:
    records.u[r] = -1
    records.added[r] = 0
    records.older[r] = free[records.part[r]]
    free[records.part[r]] = r + 1


@lean
def _free_dead(records: EdgeRecords, live: Ints32, code: Ints32, free: Ints) -> int:
    kept = 0
    for r in range(records.counters[USED]):
        u, v = records.u[r], records.v[r]
        if u < 0:
            continue
        if live[code[u]] - 1 == u and live[code[v]] - 1 == v:
            kept += 1
        else:
            free_record(records, r, free)
    return kept


@compiled
def _rebuild(records: EdgeRecords) -> None:
    """Fill the empty table. A copy that an entry's chain of older copies holds is no entry of its own."""
    covered = np.zeros(records.counters[USED], np.uint8)
    for r in range(records.counters[USED]):
        if records.u[r] >= 0 and records.older[r] > 0:
            covered[records.older[r] - 1] = 1
    count = 0
    for r in range(records.counters[USED]):
        if records.u[r] >= 0 and not covered[r]:
            records.table[place_of(records, records.u[r], records.v[r], records.key[r])] = r + 1
            count += 1
    records.counters[COUNT] = count
