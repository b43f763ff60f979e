"""Arrays whose first dimension grows."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike

if TYPE_CHECKING:
    from d3gnn.kernel.part_state import PartState

_FIRST_ROWS = 64
_MOST_ROWS = 2**31 - 1
_CHUNK_ROWS = 2**16


class GrowableArray:
    """An array whose first dimension grows; rows never written are zero.

    `data` is the whole capacity; a `reserve` may replace it.
    """

    __slots__ = ("_part_state", "data", "dtype", "name", "row_bytes", "row_shape")

    def __init__(
        self, part_state: PartState, name: str, dtype: DTypeLike, row_shape: tuple[int, ...]
    ) -> None:
        self._part_state, self.name = part_state, name
        self.dtype, self.row_shape = np.dtype(dtype), row_shape
        self.row_bytes = self.dtype.itemsize * prod(row_shape)
        # Rows without columns (as without edge features) take no space: there are always enough of them.
        self.data: Any = np.zeros((0 if self.row_bytes else _MOST_ROWS, *row_shape), self.dtype)

    def reserve(self, rows: int) -> None:
        """Make the capacity at least this many rows. It grows by a factor, so that appends take amortised
        constant time.
        """
        if rows > len(self.data):
            more = int(len(self.data) * self._part_state.growth(self.data.nbytes))
            self._part_state._grow(self, min(max(rows, more, _FIRST_ROWS), max(rows, _MOST_ROWS)))

    def used_rows(self) -> int:
        """The number of rows up to the last one that is not zero."""
        end = len(self.data) if self.row_bytes else 0
        while end > 0:
            begin = max(0, end - _CHUNK_ROWS)
            chunk = self.data[begin:end].reshape(end - begin, -1)
            written = np.flatnonzero(chunk.any(axis=1))
            if len(written):
                return begin + int(written[-1]) + 1
            end = begin
        return 0

    def clear(self) -> None:
        """Set every row to zero."""
        self.data[...] = 0


def reserve_all(arrays: Sequence[GrowableArray], rows: int) -> None:
    """Make the capacity of all these arrays, which describe the same rows, at least this many rows.

    They then have the same length, so that checking one of them is enough; each on its own would grow by a
    factor that depends on its size.
    """
    widest = max(arrays, key=lambda array: array.row_bytes)
    widest.reserve(rows)
    for array in arrays:
        if array.row_bytes and len(array.data) < len(widest.data):
            array._part_state._grow(array, len(widest.data))
