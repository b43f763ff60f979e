"""Which edges exist: (u, v, key) to a record, which is a fixed slot in a fixed part.

Vertex ids are never reused, so the records of a deleted vertex's edges can never be found again. They stay
where they are until the table is built anew, and cost the deletion nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from d3gnn.kernel.arrays import Space, reserve_all
from d3gnn.kernel.compiled import compiled, inlined, lean
from d3gnn.kernel.hashing import mix
from d3gnn.types import Bytes, Floats, Ints, Ints32

# Places in `EdgeRecords.counters`.
COUNT, USED, MASK = 0, 1, 2
# Rows of what Partition counts by part.
NEXT_ROW, NEXT_SLOT, NEXT_EDGE, FREE_EDGE, LOAD = range(5)


# Columns of `EdgeRecords.fields`: one record is one cache line.
U, V, PART, SLOT, OLDER, ADDED = range(6)
FIELDS = 6


class EdgeRecords(NamedTuple):
    """Views: the table, and the records by number.

    Fields: the ends (U is -1 in a free record), part and slot for good, the next older copy of the edge plus
    1 (in a free record: the next free one), and the place among the adds of this batch plus 1.
    """

    table: Ints32  # open addressing, linear probing: record plus 1, 0 for empty
    fields: Ints32
    key: Ints
    value: Floats
    value_time: Ints
    value_known: Bytes
    counters: Ints  # entries in the table; records in use or free; size of the table minus 1


class EdgeTable:
    """The records in their space; `features` and `width` are those of the edges' features."""

    def __init__(self, space: Space, counters: Ints, features: int, width: int) -> None:
        self._space, self._counters = space, counters
        self._table = space.array("edge_table", np.int32)
        self._columns = [
            space.array("edge_fields", np.int32, FIELDS),
            space.array("edge_key", np.int64),
            space.array("edge_value", np.float32, width),
            space.array("edge_value_time", np.int64, features),
            space.array("edge_value_known", np.uint8, features),
        ]
        self._generation = -1

    def views(self) -> EdgeRecords:
        if self._generation != self._space.generation:
            fields, key, value, value_time, value_known = (column.data for column in self._columns)
            self._views = EdgeRecords(
                self._table.data, fields, key, value, value_time, value_known, self._counters
            )
            self._generation = self._space.generation
        return self._views

    def reserve(self, more: int, live: Ints32, vertex: Ints32, parts: Ints) -> None:
        """Room for so many more edges; `live` and `vertex` tell which vertices still exist."""
        needed = int(self._counters[COUNT]) + more
        if 2 * needed > int(self._counters[MASK]):
            self._reclaim(more, live, vertex, parts)
        used = int(self._counters[USED]) + more
        if used > len(self._columns[0].data):
            reserve_all(self._columns, used)

    def _reclaim(self, more: int, live: Ints32, vertex: Ints32, parts: Ints) -> None:
        """Free the records whose vertices are gone and build the table anew."""
        kept = _free_dead(self.views(), live, vertex, parts)
        self._table.reserve(1 << int(4 * (kept + more) - 1).bit_length())
        self._table.clear()
        # The array may be longer than the power of two that was asked for: it grows in proportion.
        self._counters[MASK] = (1 << (len(self._table.data).bit_length() - 1)) - 1
        _rebuild(self.views())


@inlined
def place_of(records: EdgeRecords, u: int, v: int, key: int) -> np.uint64:
    """Where in the table (u, v, key) is, or would be."""
    mask = np.uint64(records.counters[MASK])
    at = home_of(records, u, v, key)
    while records.table[at] != 0:
        r = records.table[at] - 1
        if records.fields[r, U] == u and records.fields[r, V] == v and records.key[r] == key:
            break
        at = (at + np.uint64(1)) & mask
    return at


@inlined
def home_of(records: EdgeRecords, u: int, v: int, key: int) -> np.uint64:
    """The first place in the table where (u, v, key) may be."""
    return _hash(u, v, key) & np.uint64(records.counters[MASK])


@inlined
def _hash(u: int, v: int, key: int) -> np.uint64:
    h = mix((np.uint64(u) << np.uint64(32)) | np.uint64(v))
    return mix(h ^ np.uint64(key)) if key != 0 else h


@inlined
def vacate(records: EdgeRecords, at: np.uint64) -> None:
    """Empty a place and move up what had to step over it, so that no gravestones are left."""
    mask = np.uint64(records.counters[MASK])
    gap = at
    records.counters[COUNT] -= 1
    while True:
        at = (at + np.uint64(1)) & mask
        r = records.table[at] - 1
        if r < 0:
            break
        home = home_of(records, records.fields[r, U], records.fields[r, V], records.key[r])
        if ((at - home) & mask) >= ((at - gap) & mask):
            records.table[gap] = r + 1
            gap = at
    records.table[gap] = 0


@inlined
def new_record(records: EdgeRecords, part: int, parts: Ints) -> int:
    """A free record of this part, with its slot; or a new one."""
    r = parts[FREE_EDGE, part] - 1
    if r >= 0:
        parts[FREE_EDGE, part] = records.fields[r, OLDER]
    else:
        r = records.counters[USED]
        records.counters[USED] += 1
        records.fields[r, PART] = part
        records.fields[r, SLOT] = parts[NEXT_EDGE, part]
        parts[NEXT_EDGE, part] += 1
    for f in range(records.value_known.shape[1]):
        records.value_known[r, f] = 0
    for k in range(records.value.shape[1]):
        records.value[r, k] = 0.0
    return r  # type: ignore[no-any-return]


@inlined
def free_record(records: EdgeRecords, r: int, parts: Ints) -> None:
    records.fields[r, U] = -1
    records.fields[r, ADDED] = 0
    part = records.fields[r, PART]
    records.fields[r, OLDER] = parts[FREE_EDGE, part]
    parts[FREE_EDGE, part] = r + 1


@lean
def _free_dead(records: EdgeRecords, live: Ints32, vertex: Ints32, parts: Ints) -> int:
    kept = 0
    for r in range(records.counters[USED]):
        u, v = records.fields[r, U], records.fields[r, V]
        if u < 0:
            continue
        if live[vertex[u, 0]] - 1 == u and live[vertex[v, 0]] - 1 == v:
            kept += 1
        else:
            parts[LOAD, records.fields[r, PART]] -= 1
            free_record(records, r, parts)
    return kept


@compiled
def _rebuild(records: EdgeRecords) -> None:
    """Fill the empty table. A copy that an entry's chain of older copies holds is no entry of its own."""
    covered = np.zeros(records.counters[USED], np.uint8)
    for r in range(records.counters[USED]):
        if records.fields[r, U] >= 0 and records.fields[r, OLDER] > 0:
            covered[records.fields[r, OLDER] - 1] = 1
    count = 0
    for r in range(records.counters[USED]):
        if records.fields[r, U] >= 0 and not covered[r]:
            records.table[place_of(records, records.fields[r, U], records.fields[r, V], records.key[r])] = (
                r + 1
            )
            count += 1
    records.counters[COUNT] = count
