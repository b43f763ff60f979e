"""Dictionary encoding of ids: from keys to dense integer codes, and back."""

from __future__ import annotations

import numpy as np

from d3gnn.events.keys import IntKeys, Keys, StringKeys
from d3gnn.kernel.compiled import compiled, lean
from d3gnn.kernel.hashing import hash_keys, mix
from d3gnn.kernel.part_state import PartState
from d3gnn.types import Array, Bools, Bytes, Hashes, Ints, Ints32

_COUNT, _BYTES, _TYPE = 0, 1, 2
_NO_TYPE, _INT, _STRING = 0, 1, 2
_ALL = np.zeros(0, np.bool_)


class KeyColumn:
    """A column of keys, all of the type of the first one."""

    def __init__(self, part_state: PartState, name: str) -> None:
        self._counters = part_state.counters(name, 3)
        self._ints = part_state.array(f"{name}_ints", np.int64)
        self._ends = part_state.array(f"{name}_ends", np.int64, 2)
        self._data = part_state.array(f"{name}_data", np.uint8)

    @property
    def type_code(self) -> int:
        """The type of the keys as a number, 0 before the first one. It never changes again."""
        return int(self._counters[_TYPE])

    @type_code.setter
    def type_code(self, code: int) -> None:
        self._counters[_TYPE] = code

    @property
    def type(self) -> type[IntKeys] | type[StringKeys] | None:
        return (None, IntKeys, StringKeys)[int(self._counters[_TYPE])]

    def accepts(self, keys: Keys) -> bool:
        """Whether keys have the type of this column."""
        key_type = self.type
        return key_type is None or isinstance(keys, key_type)

    def fix_type(self, keys: Keys, good: Bools) -> None:
        """Fix the type of the column if any of these keys is valid."""
        if self.type is None and good.any():
            self._counters[_TYPE] = _INT if isinstance(keys, IntKeys) else _STRING

    def put(self, rows: Array, keys: Keys, top: int) -> None:
        """Write keys at `rows`, which are below `top`; each row is written once."""
        if isinstance(keys, IntKeys):
            self._counters[_TYPE] = _INT
            self._ints.reserve(top)
            _put(rows, keys.values, self._ints.data)
            return
        self._counters[_TYPE] = _STRING
        begin = int(self._counters[_BYTES])
        first, last = int(keys.offsets[0]), int(keys.offsets[-1])
        self._data.reserve(begin + last - first)
        self._data.data[begin : begin + last - first] = keys.data[first:last]
        self._counters[_BYTES] = begin + last - first
        self._ends.reserve(top)
        self._ends.data[rows, 0] = keys.offsets[:-1] - first + begin
        self._ends.data[rows, 1] = keys.offsets[1:] - first + begin

    @property
    def ints(self) -> Ints | None:
        """Integer keys by row; None for string keys."""
        return self._ints.data if self._counters[_TYPE] == _INT else None

    def room_for_ints(self, top: int) -> Ints:
        """The array of integer keys, with at least `top` rows."""
        self._ints.reserve(top)
        return self._ints.data  # type: ignore[no-any-return]

    def take(self, rows: Array) -> Keys:
        """The keys at `rows`."""
        if self.type is not StringKeys:
            return IntKeys(self._ints.data.take(rows) if self.type else np.zeros(len(rows), np.int64))
        ends = self._ends.data[rows]
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(ends[:, 1] - ends[:, 0], out=offsets[1:])
        data = np.empty(offsets[-1], np.uint8)
        _gather_bytes(ends, self._data.data, offsets, data)
        return StringKeys(offsets, data)


class IdTable:
    """A hash table that gives each new key the next code; codes never change.

    >>> from d3gnn.events.keys import keys_of
    >>> table = IdTable(PartState(), "id")
    >>> table.intern(keys_of([30, 10, 30])).tolist(), table.find(keys_of([10, 5])).tolist()
    ([0, 1, 0], [1, -1])
    """

    def __init__(self, part_state: PartState, name: str) -> None:
        self._hash = part_state.array(f"{name}_hash", np.uint64)
        self._table = part_state.array(f"{name}_table", np.int32)
        self.keys = KeyColumn(part_state, name)
        self._counters = part_state.counters(name, 3)  # shared with the column

    def __len__(self) -> int:
        return int(self._counters[_COUNT])

    @property
    def hashes(self) -> Hashes:
        """The hash of each key by code; longer than the number of codes."""
        return self._hash.data  # type: ignore[no-any-return]

    def find(self, keys: Keys) -> Ints32:
        """The code of each key, -1 for unknown keys."""
        return self.intern(keys, np.zeros(len(keys), np.bool_))

    def intern(self, keys: Keys, create: Bools | None = None) -> Ints32:
        """The code of each key; -1 for null keys, and for unknown keys whose `create` is false.

        New codes are assigned in the order of the keys. By default all unknown keys get one.
        """
        if not self.keys.accepts(keys):
            return np.full(len(keys), -1, np.int32)
        create_mask = _ALL if create is None else create
        if keys.valid is not None:
            create_mask = keys.valid if create is None else create & keys.valid
        if isinstance(keys, IntKeys):
            codes = self.intern_ints(keys.values, create_mask)
        else:
            codes = self._intern_strings(keys, create_mask)
        if keys.valid is not None:
            codes[~keys.valid] = -1
        return codes

    def intern_ints(self, values: Ints, create: Bools = _ALL) -> Ints32:
        """`intern` for a table that accepts integers; an empty `create` means all."""
        n, count = len(values), len(self)
        codes = np.empty(n, np.int32)
        self._reserve(count + n)
        keys = self.keys.room_for_ints(count + n)
        created = _intern_ints(values, create, self._table.data, self._hash.data, keys, count, codes)
        if created:
            self._counters[_TYPE] = _INT
            self._counters[_COUNT] = count + created
        return codes

    def _intern_strings(self, keys: StringKeys, create: Bools) -> Ints32:
        n, count = len(keys), len(self)
        codes = np.empty(n, np.int32)
        self._reserve(count + n)
        self.keys._ends.reserve(count + n)
        created = _intern_strings(
            keys.offsets, keys.data, hash_keys(keys), create, self._table.data, self._hash.data,
            self.keys._ends.data, self.keys._data.data, count, codes,
        )  # fmt: skip
        if created:
            fresh = np.empty(created, np.int64)
            _first_rows(codes, count, fresh)
            self.keys.put(np.arange(count, count + created), keys.take(fresh), count + created)
            self._counters[_COUNT] = count + created
        return codes

    def _reserve(self, count: int) -> None:
        self._hash.reserve(count)
        if 2 * count > len(self._table.data):
            self._table.reserve(1 << int(4 * count - 1).bit_length())
            # The array grows in proportion, so its length need not be a power of two.
            self._table.clear()
            _rehash(self._hash.data, len(self), self._table.data)


@lean
def _put(rows: Ints32, keys: Ints, ints: Ints) -> None:
    for i in range(len(rows)):
        ints[rows[i]] = keys[i]


@compiled
def _slots(table: Ints32) -> np.uint64:
    size = np.uint64(1)
    while size * np.uint64(2) <= np.uint64(len(table)):
        size *= np.uint64(2)
    return size - np.uint64(1)


@compiled
def _rehash(hashes: Hashes, count: int, table: Ints32) -> None:
    mask = _slots(table)
    for code in range(count):
        at = hashes[code] & mask
        while table[at] != 0:
            at = (at + np.uint64(1)) & mask
        table[at] = code + 1


@compiled
def _intern_ints(
    values: Ints, create: Bools, table: Ints32, known: Hashes, keys: Ints, count: int, codes: Ints32
) -> int:
    mask = _slots(table)
    first = count
    for i in range(len(values)):
        h = mix(np.uint64(values[i]))
        at = h & mask
        # The hash of an integer is a bijection, so equal hashes are equal keys.
        while table[at] != 0 and known[table[at] - 1] != h:
            at = (at + np.uint64(1)) & mask
        if table[at] != 0:
            codes[i] = table[at] - 1
        elif len(create) == 0 or create[i]:
            known[count] = h
            keys[count] = values[i]
            codes[i] = count
            count += 1
            table[at] = count
        else:
            codes[i] = -1
    return count - first


@compiled
def _same_bytes(a: Bytes, a_begin: int, b: Bytes, b_begin: int, length: int) -> bool:
    for j in range(length):  # noqa: SIM110  # compiled
        if a[a_begin + j] != b[b_begin + j]:
            return False
    return True


@compiled
def _intern_strings(
    offsets: Ints, data: Bytes, hashes: Hashes, create: Bools, table: Ints32, known: Hashes,
    ends: Ints, pool: Bytes, count: int, codes: Ints32,
) -> int:  # fmt: skip
    mask = _slots(table)
    first = count
    rows = np.empty(len(hashes), np.int64)  # row of each key that is new in this batch
    for i in range(len(hashes)):
        h = hashes[i]
        begin, length = offsets[i], offsets[i + 1] - offsets[i]
        at = h & mask
        while table[at] != 0:
            code = table[at] - 1
            if known[code] == h:
                if code < first:
                    if ends[code, 1] - ends[code, 0] == length and _same_bytes(
                        pool, ends[code, 0], data, begin, length
                    ):
                        break
                else:
                    row = rows[code - first]
                    if offsets[row + 1] - offsets[row] == length and _same_bytes(
                        data, offsets[row], data, begin, length
                    ):
                        break
            at = (at + np.uint64(1)) & mask
        if table[at] != 0:
            codes[i] = table[at] - 1
        elif len(create) == 0 or create[i]:
            known[count] = h
            rows[count - first] = i
            codes[i] = count
            count += 1
            table[at] = count
        else:
            codes[i] = -1
    return count - first


@compiled
def _first_rows(codes: Ints32, first: int, rows: Ints) -> None:
    """The first row of each code from `first` on; codes are assigned in the order of rows."""
    seen = first
    for i in range(len(codes)):
        if codes[i] == seen:
            rows[seen - first] = i
            seen += 1


@compiled
def _gather_bytes(ends: Ints, pool: Bytes, offsets: Ints, out: Bytes) -> None:
    for i in range(len(ends)):
        at = offsets[i]
        for j in range(ends[i, 0], ends[i, 1]):
            out[at] = pool[j]
            at += 1
