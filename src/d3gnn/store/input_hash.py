"""The hash of a batch's input, by which a replayed batch is compared with the logged one."""

from __future__ import annotations

import numpy as np

from d3gnn.events import EventBatch
from d3gnn.events.event import NO_TIME
from d3gnn.events.keys import IntKeys, keys_of
from d3gnn.kernel.compiled import compiled
from d3gnn.kernel.hashing import hash_ints, hash_keys, mix
from d3gnn.types import Array, Bools, Hashes, Ints


def input_hash(events: EventBatch) -> int:
    """A hash of 64 bits over all columns of all rows in any order: the sum of a hash of each row.

    Nulls do not count, so a column of nulls and a missing column are the same.

    >>> one, other = EventBatch.edges([1, 2], [3, 4]), EventBatch.edges([2, 1], [4, 3])
    >>> input_hash(one) == input_hash(other), input_hash(one) == input_hash(EventBatch.edges([1, 2], [4, 3]))
    (True, False)
    """
    rows = np.zeros(len(events), np.uint64)
    _add_ints(rows, 0, events.op.astype(np.int64) * 256 + events.element)
    for column, keys in enumerate((events.src, events.dst, events.key), start=1):
        if keys is not None:
            # The number 1 and the string "1" are different keys.
            _add(rows, column if isinstance(keys, IntKeys) else -column, hash_keys(keys), keys.valid)
    for column, times in enumerate((events.time, events.arrival, events.partition, events.offset), start=4):
        if times is not None:
            _add_ints(rows, column, times, times != NO_TIME)
    if events.feature is not None:
        names = hash_keys(keys_of([*events.names, ""]))
        _add(rows, 8, names[events.feature], events.feature >= 0)
    if events.ttl is not None:
        _add_ints(rows, 10, events.ttl, events.ttl != NO_TIME)
    if events.values is not None and events.value_offsets is not None:
        bits = np.ascontiguousarray(events.values, np.float32).view(np.uint32)
        _add_values(rows, _salt(9), bits, events.value_offsets)
    return int(_total(rows))


def _salt(column: int) -> np.uint64:
    """A constant that separates the hashes of different columns."""
    return np.uint64((column * 0xD6E8FEB86659FD93 + 0x2545F4914F6CDD1D) % 2**64)


def _add(rows: Hashes, column: int, hashes: Hashes, valid: Bools | None = None) -> None:
    _add_hashes(rows, _salt(column), hashes, np.zeros(0, np.bool_) if valid is None else valid)


def _add_ints(rows: Hashes, column: int, values: Ints, valid: Bools | None = None) -> None:
    hashes = np.empty(len(values), np.uint64)
    hash_ints(values, hashes)
    _add(rows, column, hashes, valid)


@compiled
def _add_hashes(rows: Hashes, salt: np.uint64, hashes: Hashes, valid: Bools) -> None:
    for i in range(len(rows)):
        if len(valid) == 0 or valid[i]:
            rows[i] += mix(hashes[i] ^ salt)


@compiled
def _add_values(rows: Hashes, salt: np.uint64, bits: Array, offsets: Ints) -> None:
    for i in range(len(rows)):
        begin, end = offsets[i], offsets[i + 1]
        if end > begin:
            h = mix(np.uint64(end - begin) ^ salt)
            for j in range(begin, end):
                h = mix(h ^ np.uint64(bits[j]))
            rows[i] += h


@compiled
def _total(rows: Hashes) -> np.uint64:
    total = np.uint64(0)
    for row in rows:
        total += mix(row)
    return total
