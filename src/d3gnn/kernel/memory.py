"""Memory of this process for growing arrays, in large pages where the system has them.

A batch touches rows all over many arrays, most of them small. malloc puts those into pages of 4 KB, each with
a TLB entry of its own, and returns memory to the system, from which it must be fetched again page by page: 30
times slower than clearing it. Here, arrays share large pages, and the memory of deleted arrays is used again.
"""

from __future__ import annotations

from collections import defaultdict
from math import prod
from threading import Lock
from typing import Any

import numpy as np

from d3gnn.kernel.mapping import LARGE_PAGE, give_back, map_memory
from d3gnn.types import Array, Bytes

#: Arrays below the first size come from malloc, which is as fast; above the second, they have pages of their
#: own.
_SMALLEST, _LARGEST = 2**15, 2**26
_CHUNK = 32 * LARGE_PAGE
#: Size classes from one power of two to the next.
_STEPS = 4
#: Free bytes that are kept for later arrays; more of them are returned to the system.
_KEPT = 2**30


def zeros(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An array of zeros; its memory is used again when it and all views of it are deleted.

    >>> zeros((2, 3), np.dtype(np.int32)).tolist()
    [[0, 0, 0], [0, 0, 0]]
    """
    return _make(shape, dtype, 0)


def grown(array: Array, rows: int) -> Array:
    """A copy with this many rows, the new ones zero.

    >>> grown(np.array([4, 5]), 3).tolist()
    [4, 5, 0]
    """
    larger = _make((rows, *array.shape[1:]), array.dtype, array.nbytes)
    larger[: len(array)] = array
    return larger


def _make(shape: tuple[int, ...], dtype: np.dtype[Any], clear_from: int) -> Array:
    """An array that is zero from a byte on, with arbitrary content before it."""
    size = prod(shape) * dtype.itemsize
    if size < _SMALLEST:
        return np.zeros(shape, dtype)
    whole = map_memory(size) if size > _LARGEST else _pool.take(size, clear_from)
    return whole.view(dtype).reshape(shape)


class _Pool:
    """Free memory in few size classes, so that the memory of one array fits the next."""

    def __init__(self) -> None:
        self._chunk: Bytes = np.zeros(0, np.uint8)
        self._free: defaultdict[int, list[Bytes]] = defaultdict(list)
        self._kept = 0
        self._lock = Lock()

    def take(self, size: int, clear_from: int) -> Bytes:
        """This many bytes, which are zero from byte `clear_from` on."""
        step = (1 << (size - 1).bit_length()) // 2 // _STEPS
        size_class = -(-size // step) * step
        with self._lock:
            memory, is_new = self._find(size_class)
        if not is_new:
            memory[clear_from:size] = 0
        return np.asarray(_Loan(self, memory))[:size]

    def _find(self, size_class: int) -> tuple[Bytes, bool]:
        """Memory of this size, and whether it is new, and therefore zero."""
        if self._free[size_class]:
            self._kept -= size_class
            return self._free[size_class].pop(), False
        if size_class > len(self._chunk):
            self._chunk = map_memory(_CHUNK)
        memory, self._chunk = self._chunk[:size_class], self._chunk[size_class:]
        return memory, True

    def put(self, memory: Bytes) -> None:
        # Without the lock: this thread may hold it, if an array is deleted by the collector inside `take`.
        self._kept += len(memory)
        if self._kept > _KEPT:
            give_back(memory)
        self._free[len(memory)].append(memory)


class _Loan:
    """Memory under numpy arrays; it returns to the pool when the last of them is deleted."""

    def __init__(self, pool: _Pool, memory: Bytes) -> None:
        self._pool, self._memory = pool, memory
        self.__array_interface__ = memory.__array_interface__

    def __del__(self) -> None:
        self._pool.put(self._memory)


_pool = _Pool()
