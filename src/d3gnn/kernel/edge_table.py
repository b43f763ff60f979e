"""The edge table: a hash table from (u, v, key) to a record, which has a fixed part and slot.

Vertex numbers are never reused, so the edges of a deleted vertex can never be found again. Their records are
freed when the table is rebuilt, which makes deleting a vertex cheap.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from d3gnn.kernel.arrays import reserve_all
from d3gnn.kernel.compiled import compiled, inlined, lean
from d3gnn.kernel.expiry_wheel import EDGE_COLUMNS, NEWER, unlink
from d3gnn.kernel.hashing import mix
from d3gnn.kernel.part_state import PartState
from d3gnn.types import Bytes, Floats, Ints, Ints32

# Places in `EdgeRecords.counters`.
COUNT, USED, MASK = 0, 1, 2
# Rows of `Graph.parts`, counters by part: next row of a master, next slot of a replica and of an edge, first
# free record plus 1 (0: none), number of edges.
NEXT_ROW, NEXT_SLOT, NEXT_EDGE, FREE_EDGE, LOAD = range(5)

_NO_WHEEL = np.zeros(0, np.int64)

# Columns of `EdgeRecords.fields`: one record is one cache line.
U, V, PART, SLOT, OLDER, ADDED = range(6)
FIELDS = 6


class EdgeRecords(NamedTuple):
    """Views of the table, and of the records by number.

    U, V: the ends; U is -1 in a free record. PART, SLOT: never change. OLDER: the next older parallel edge
    plus 1; in a free record, the next free one. ADDED: position in `Adds` of this batch plus 1.
    """

    table: Ints32  # open addressing, linear probing: record plus 1, 0 for empty
    fields: Ints32
    key: Ints
    value: Floats
    value_time: Ints
    value_known: Bytes
    counters: Ints  # [COUNT: entries in the table, USED: records, MASK: size of the table minus 1]
    expiry: Ints  # [record, EDGE_COLUMNS of the expiry wheel]; without columns if nothing expires
    wheel: Ints  # empty if nothing expires


class EdgeTable:
    """The arrays of the table. `features` is the number of edge features, `width` that of their values.

    `wheel` is the expiry wheel of the edges; None if edges do not expire.
    """

    def __init__(
        self, part_state: PartState, features: int, width: int, wheel: Callable[[], Ints] | None = None
    ) -> None:
        self._part_state, self._counters = part_state, part_state.counters("edges", 3)
        self._table = part_state.array("edge_table", np.int32)
        self._columns = [
            part_state.array("edge_fields", np.int32, FIELDS),
            part_state.array("edge_key", np.int64),
            part_state.array("edge_value", np.float32, width),
            part_state.array("edge_value_time", np.int64, features),
            part_state.array("edge_value_known", np.uint8, features),
            part_state.array("edge_expiry", np.int64, EDGE_COLUMNS if wheel else 0),
        ]
        self._wheel = wheel or _no_wheel
        self._generation = -1

    def views(self) -> EdgeRecords:
        if self._generation != self._part_state.generation:
            fields, key, value, value_time, value_known, expiry = (column.data for column in self._columns)
            self._views = EdgeRecords(
                self._table.data, fields, key, value, value_time, value_known, self._counters, expiry,
                self._wheel(),
            )  # fmt: skip
            self._generation = self._part_state.generation
        return self._views

    def reserve(self, more: int, live: Ints32, vertex: Ints32, parts: Ints) -> None:
        """Make room for more edges. `live` and `vertex` tell which vertices exist, as in `Graph`."""
        needed = int(self._counters[COUNT]) + more
        if 2 * needed > int(self._counters[MASK]):
            self._reclaim(more, live, vertex, parts)
        used = int(self._counters[USED]) + more
        if used > len(self._columns[0].data):
            reserve_all(self._columns, used)

    def _reclaim(self, more: int, live: Ints32, vertex: Ints32, parts: Ints) -> None:
        """Free the records of deleted vertices and rebuild the table."""
        kept = _free_dead(self.views(), live, vertex, parts)
        self._table.reserve(1 << int(3 * (kept + more) - 1).bit_length())
        self._table.clear()
        # The array grows in proportion, so its length need not be a power of two.
        self._counters[MASK] = (1 << (len(self._table.data).bit_length() - 1)) - 1
        _rebuild(self.views())


def _no_wheel() -> Ints:
    return _NO_WHEEL


@inlined
def place_of(records: EdgeRecords, u: int, v: int, key: int) -> np.uint64:
    """The place of (u, v, key) in the table; an empty one if it is not there."""
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
    """The place where the search for (u, v, key) begins."""
    return _hash(u, v, key) & np.uint64(records.counters[MASK])


@inlined
def _hash(u: int, v: int, key: int) -> np.uint64:
    h = mix((np.uint64(u) << np.uint64(32)) | np.uint64(v))
    return mix(h ^ np.uint64(key)) if key != 0 else h


@inlined
def vacate(records: EdgeRecords, at: np.uint64) -> None:
    """Delete the entry at a place by backward shifting, which leaves no tombstones."""
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
def detach(records: EdgeRecords, at: np.uint64, r: int) -> None:
    """Take a record out of the table and the chain of its parallel edges, whose place in the table is `at`.

    Where edges expire, any of the chain may go; else only the newest does.
    """
    older = records.fields[r, OLDER]
    if len(records.wheel) > 0:
        newer = records.expiry[r, NEWER]
        if newer > 0:
            records.fields[newer - 1, OLDER] = older
            if older > 0:
                records.expiry[older - 1, NEWER] = newer
            else:  # the oldest one, which the newest one knows
                records.expiry[records.table[at] - 1, NEWER] = -newer
            return
        if older > 0:
            records.expiry[older - 1, NEWER] = newer
    if older > 0:
        records.table[at] = older
    else:
        vacate(records, at)


@inlined
def new_record(records: EdgeRecords, part: int, parts: Ints) -> int:
    """A record of this part: a free one, with its slot, or a new one."""
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
            if len(records.wheel) > 0:
                unlink(records.expiry, records.wheel, r)
            parts[LOAD, records.fields[r, PART]] -= 1
            free_record(records, r, parts)
    return kept


@compiled
def _rebuild(records: EdgeRecords) -> None:
    """Fill the empty table. Of parallel edges, only the newest has an entry; the others are chained to it."""
    is_older = np.zeros(records.counters[USED], np.uint8)
    for r in range(records.counters[USED]):
        if records.fields[r, U] >= 0 and records.fields[r, OLDER] > 0:
            is_older[records.fields[r, OLDER] - 1] = 1
    count = 0
    for r in range(records.counters[USED]):
        if records.fields[r, U] >= 0 and not is_older[r]:
            records.table[place_of(records, records.fields[r, U], records.fields[r, V], records.key[r])] = (
                r + 1
            )
            count += 1
    records.counters[COUNT] = count
