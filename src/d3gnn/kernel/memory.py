"""Memory of this process for arrays that grow, in large pages where the system has them.

What a batch touches lies all over the arrays, and there are many of them, most of them small. malloc puts
those into pages of 4 KB, each of which the processor has to look up, and gives memory back to the system that
has to be asked for again: page by page, which takes 30 times as long as to clear it. Here, arrays lie side by
side in large pages, and those that are gone make room for others.
"""

from __future__ import annotations

from collections import defaultdict
from math import prod
from threading import Lock
from typing import Any

import numpy as np

from d3gnn.kernel.mapping import LARGE_PAGE, give_back, map_memory
from d3gnn.types import Array, Bytes

#: Below this size malloc does as well; above the other one, an array has large pages to itself.
_SMALLEST, _LARGEST = 2**15, 2**26
_CHUNK = 32 * LARGE_PAGE
#: Sizes that are told apart, from one power of two to the next.
_STEPS = 4
#: Bytes that nobody uses, and that are kept for whoever comes next; what is more goes back to the system.
_KEPT = 2**30


def zeros(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An array of zeros; its memory is for others when it, and all that look at it, are gone.

    >>> zeros((2, 3), np.dtype(np.int32)).tolist()
    [[0, 0, 0], [0, 0, 0]]
    """
    return _make(shape, dtype, 0)


def grown(array: Array, rows: int) -> Array:
    """A copy with so many rows, the new ones zero.

    >>> grown(np.array([4, 5]), 3).tolist()
    [4, 5, 0]
    """
    larger = _make((rows, *array.shape[1:]), array.dtype, array.nbytes)
    larger[: len(array)] = array
    return larger


def _make(shape: tuple[int, ...], dtype: np.dtype[Any], clear_from: int) -> Array:
    """An array that is zero from some byte on, and anything before."""
    size = prod(shape) * dtype.itemsize
    if size < _SMALLEST:
        return np.zeros(shape, dtype)
    whole = map_memory(size) if size > _LARGEST else _pool.take(size, clear_from)
    return whole.view(dtype).reshape(shape)


class _Pool:
    """Stretches of memory by their sizes, which are few: what one array leaves fits the next."""

    def __init__(self) -> None:
        self._chunk: Bytes = np.zeros(0, np.uint8)
        self._free: defaultdict[int, list[Bytes]] = defaultdict(list)
        self._kept = 0
        self._lock = Lock()

    def take(self, size: int, clear_from: int) -> Bytes:
        """So many bytes, which are zero from that one on."""
        step = (1 << (size - 1).bit_length()) // 2 // _STEPS
        room = -(-size // step) * step
        with self._lock:
            stretch, is_new = self._find(room)
        if not is_new:
            stretch[clear_from:size] = 0
        return np.asarray(_Loan(self, stretch))[:size]

    def _find(self, room: int) -> tuple[Bytes, bool]:
        """A stretch of this size, and whether nobody has written to it."""
        if self._free[room]:
            self._kept -= room
            return self._free[room].pop(), False
        if room > len(self._chunk):
            self._chunk = map_memory(_CHUNK)
        stretch, self._chunk = self._chunk[:room], self._chunk[room:]
        return stretch, True

    def put(self, stretch: Bytes) -> None:
        # Without the lock: whoever holds it may be the one in whose midst an array goes.
        self._kept += len(stretch)
        if self._kept > _KEPT:
            give_back(stretch)
        self._free[len(stretch)].append(stretch)


class _Loan:
    """A stretch of memory in use, for numpy to look at; it goes back when the last array over it goes."""

    def __init__(self, pool: _Pool, stretch: Bytes) -> None:
        self._pool, self._stretch = pool, stretch
        self.__array_interface__ = stretch.__array_interface__

    def __del__(self) -> None:
        self._pool.put(self._stretch)


_pool = _Pool()
