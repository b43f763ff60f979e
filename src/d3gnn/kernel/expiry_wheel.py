"""A hierarchical timing wheel: rows by the time at which they expire, in compiled arrays.

A time is a number of 64 bits, cut into digits of 6. A row is in the slot of the highest digit in which its
time differs from that of the wheel (Varghese and Lauck 1987). When time reaches a slot, its rows have expired
or move to a lower level, so each row moves at most once per level, whatever the resolution and the number of
rows. A later time of a row is only noted: the row moves when its slot is reached.
"""

from __future__ import annotations

import numpy as np

from d3gnn.kernel.compiled import inlined, lean
from d3gnn.types import Ints, Ints32

_BITS = 6
_SLOTS, _LEVELS = 1 << _BITS, 11
# Places in a wheel: the first row of each slot plus 1, by level; a bit for each slot in use, by level; the
# time of the wheel; how far expiry has come (`get_watermark`).
_USED = _LEVELS * _SLOTS
_NOW = _USED + _LEVELS
_WATERMARK = _NOW + 1
WHEEL_SIZE = _WATERMARK + 1

#: Columns of a row: when it expires; the next and the previous row of its slot plus 1 (the first row of a
#: slot has the slot as a negative number).
EXPIRES, NEXT, PREVIOUS = range(3)
#: Further columns of edges: their lifetime; and the next newer parallel edge plus 1 (the newest one has the
#: oldest one plus 1 as a negative number).
TTL, NEWER = 3, 4
VERTEX_COLUMNS, EDGE_COLUMNS = 3, 5

_SIGN = np.uint64(1 << 63)
_DIGIT = np.uint64(_SLOTS - 1)
_ONE, _WIDTH = np.uint64(1), np.uint64(_BITS)


@inlined
def _ordered(time: int) -> np.uint64:
    """Times as unsigned numbers in the same order; zero, which a new wheel has, is the earliest time."""
    return np.uint64(time) ^ _SIGN


@inlined
def get_watermark(wheel: Ints) -> int:
    """The time up to which everything has expired; the earliest of all for a new wheel."""
    return np.int64(np.uint64(wheel[_WATERMARK]) ^ _SIGN)  # type: ignore[return-value]


@inlined
def set_watermark(wheel: Ints, time: int) -> None:
    wheel[_WATERMARK] = np.int64(_ordered(time))


@inlined
def link(rows: Ints, wheel: Ints, r: int, expires: int) -> None:
    """Put a row that is in no slot into that of its time."""
    rows[r, EXPIRES] = expires
    now = np.uint64(wheel[_NOW])
    at = max(_ordered(expires), now)
    difference = (at ^ now) >> _WIDTH
    level = 0
    while difference != 0:
        difference >>= _WIDTH
        level += 1
    digit = (at >> np.uint64(_BITS * level)) & _DIGIT
    slot = level * _SLOTS + np.int64(digit)
    first = wheel[slot]
    rows[r, NEXT] = first
    rows[r, PREVIOUS] = -slot
    if first > 0:
        rows[first - 1, PREVIOUS] = r + 1
    wheel[slot] = r + 1
    wheel[_USED + level] |= np.int64(_ONE << digit)


@inlined
def unlink(rows: Ints, wheel: Ints, r: int) -> None:
    """Take a row out of its slot."""
    next, previous = rows[r, NEXT], rows[r, PREVIOUS]
    if next > 0:
        rows[next - 1, PREVIOUS] = previous
    if previous > 0:
        rows[previous - 1, NEXT] = next
    else:
        wheel[-previous] = next
        if next == 0:
            _mark_empty(wheel, -previous)


@inlined
def _mark_empty(wheel: Ints, slot: int) -> None:
    level = slot // _SLOTS
    wheel[_USED + level] &= ~np.int64(_ONE << np.uint64(slot % _SLOTS))


@inlined
def _first_slot(wheel: Ints) -> int:
    """The slot of the earliest rows; -1 if there are none."""
    for level in range(_LEVELS):
        used = np.uint64(wheel[_USED + level])
        if used != 0:
            digit = 0
            while used & _ONE == 0:
                used >>= _ONE
                digit += 1
            return level * _SLOTS + digit
    return -1


@inlined
def _begin_of(wheel: Ints, slot: int) -> np.uint64:
    """The earliest time of a slot, as an ordered number."""
    shift = _BITS * (slot // _SLOTS)
    higher = np.uint64(0)
    if shift + _BITS < 64:
        higher = np.uint64(wheel[_NOW]) >> np.uint64(shift + _BITS) << np.uint64(shift + _BITS)
    return higher | np.uint64(slot % _SLOTS) << np.uint64(shift)


@lean
def take_expired(rows: Ints, wheel: Ints, time: int) -> tuple[int, int]:
    """Take the rows that expire before this time out of the wheel; the first of them plus 1, and how many.

    `list_expired` follows the chain of rows.
    """
    limit = _ordered(time)
    first, count = 0, 0
    while True:
        slot = _first_slot(wheel)
        if slot < 0:
            break
        begin = _begin_of(wheel, slot)
        if begin >= limit:
            break
        wheel[_NOW] = np.int64(begin)
        r = wheel[slot] - 1
        wheel[slot] = 0
        _mark_empty(wheel, slot)
        while r >= 0:
            next = rows[r, NEXT] - 1
            if _ordered(rows[r, EXPIRES]) < limit:
                rows[r, NEXT] = first
                first = r + 1
                count += 1
            else:
                link(rows, wheel, r, rows[r, EXPIRES])
            r = next
    return first, count


@lean
def list_expired(rows: Ints, first: int, found: Ints32, expires: Ints) -> None:
    """The rows of a chain of `take_expired`, and when each expired."""
    r = first - 1
    for i in range(len(found)):
        found[i], expires[i] = r, rows[r, EXPIRES]
        r = rows[r, NEXT] - 1


@lean
def next_expiry(wheel: Ints) -> int:
    """A time before which nothing expires; the latest of all for an empty wheel."""
    slot = _first_slot(wheel)
    if slot < 0:
        return np.int64(~_SIGN)  # type: ignore[return-value]
    return np.int64(_begin_of(wheel, slot) ^ _SIGN)  # type: ignore[return-value]


@lean
def watermark_of(wheel: Ints) -> int:
    """`get_watermark`, for Python."""
    return get_watermark(wheel)


@lean
def advance_watermark(wheel: Ints, time: int) -> None:
    """`set_watermark`, for Python."""
    set_watermark(wheel, time)
