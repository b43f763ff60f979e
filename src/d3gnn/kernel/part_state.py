"""The state of one operator part: named arrays and named counters, in the memory of one process."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import DTypeLike

from d3gnn.kernel.arrays import GrowableArray
from d3gnn.kernel.memory import grown
from d3gnn.types import Ints

MAGIC = 0x64_33_67_6E_6E  # "d3gnn"
#: Version of the layout of all arrays and counters; increase it with every change.
LAYOUT = 7
HEADER_WORDS = 512
# Words of the header: magic, layout, generation, epoch, batch, dirty, files, and the bytes that they have at
# least, run; then the directory of the counters (two words per name: its hash; where its counters begin and
# how many there are), then the counters.
GENERATION, EPOCH, BATCH, DIRTY, FILES, BYTES, RUN = range(2, 9)
#: Word of the header with the checksum of a seal (`MappedPartState`), 0 while there is none.
SEAL = 15
_DIRECTORY = slice(16, 80)
_FIRST_COUNTER = 80
_COUNT_BITS = 16
_LARGE = 2**28


def is_large(nbytes: int) -> bool:
    """Whether an array of this size should grow by less than a small one."""
    return nbytes >= _LARGE


def find_counters(header: Ints, name: str) -> Ints | None:
    """The counters of this name in a header; None if there are none."""
    directory = header[_DIRECTORY].reshape(-1, 2)
    found = np.flatnonzero(directory[:, 0] == _hash(name))
    if not len(found):
        return None
    place = int(directory[found[0], 1])
    begin = place >> _COUNT_BITS
    return header[begin : begin + (place & (1 << _COUNT_BITS) - 1)]


def _hash(name: str) -> int:
    return 1 + zlib.crc32(name.encode())


class PartState:
    """The arrays of one operator part, in memory."""

    def __init__(self) -> None:
        self._arrays: dict[str, GrowableArray] = {}
        self._header: Ints = np.zeros(HEADER_WORDS, np.int64)
        self._header[:2] = MAGIC, LAYOUT
        #: Increases whenever an array moves in memory.
        self.generation = 0

    @property
    def version(self) -> tuple[int, int]:
        """(epoch, batch): the batch is the next one to process."""
        return int(self._header[EPOCH]), int(self._header[BATCH])

    @property
    def dirty(self) -> bool:
        """Whether a batch was begun and not committed."""
        return bool(self._header[DIRTY])

    @property
    def run(self) -> int:
        """The number of the run of the query that may change the arrays; 0 if there was none."""
        return int(self._header[RUN])

    @run.setter
    def run(self, number: int) -> None:
        self._header[RUN] = number

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays up to the last written row. Reads every row: for reports."""
        return sum(array.used_rows() * array.row_bytes for array in self._arrays.values())

    def array(self, name: str, dtype: DTypeLike, *row_shape: int) -> GrowableArray:
        """The array of this name; a new one is empty."""
        array = self._arrays.get(name)
        if array is None:
            array = self._arrays[name] = GrowableArray(self, name, dtype, row_shape)
            self._open(array)
        return array

    def counters(self, name: str, count: int) -> Ints:
        """`count` integers of this name, 0 at first; a view that stays valid as long as the state."""
        found = find_counters(self._header, name)
        if found is None:
            directory = self._header[_DIRECTORY].reshape(-1, 2)
            entry = int(np.count_nonzero(directory[:, 0]))
            last = int(directory[entry - 1, 1]) if entry else _FIRST_COUNTER << _COUNT_BITS
            begin = (last >> _COUNT_BITS) + (last & (1 << _COUNT_BITS) - 1)
            if entry == len(directory) or begin + count > HEADER_WORDS:
                raise ValueError(
                    f"no room for {count} counters {name!r} in the header of an operator part's state"
                )
            directory[entry] = _hash(name), begin << _COUNT_BITS | count
            found = self._header[begin : begin + count]
        if len(found) != count:
            raise ValueError(f"there are {len(found)} counters {name!r}, not {count}")
        return found

    def counter(self, name: str) -> Ints:
        """The one integer of this name, as an array of length 1."""
        return self.counters(name, 1)

    def growth(self, nbytes: int) -> float:
        """The factor by which an array of this size grows."""
        return 1.5 if is_large(nbytes) else 2.0

    def begin(self) -> None:
        """Mark the arrays as between two versions."""
        self._header[DIRTY] = 1
        self._header[SEAL] = 0

    def commit(self, epoch: int, batch: int) -> None:
        """Stamp the version: the arrays are whole again."""
        self._header[EPOCH] = epoch
        self._header[BATCH] = batch
        self._header[DIRTY] = 0

    def reset(self) -> None:
        """Set all arrays and counters to zero; the arrays keep their capacity."""
        for array in self._arrays.values():
            array.clear()
        self._header[_FIRST_COUNTER:] = 0

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Exclude all other processes; in memory there are none."""
        yield

    def _open(self, array: GrowableArray) -> None:
        pass

    def _grow(self, array: GrowableArray, rows: int) -> None:
        array.data = grown(array.data, rows)
        self.generation += 1
