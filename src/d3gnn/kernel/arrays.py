"""Growable arrays, in memory or in memory-mapped files, and the space that holds those of one operator part.

Everything an operator part knows lies in one `Space`: named arrays and a few counters. A mapped space can be
left by one process and entered by another: its header says which version it holds, whether somebody died in
the middle of a batch, and, by its generation, whether arrays have to be mapped anew because they grew.
"""

from __future__ import annotations

import fcntl
import os
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from d3gnn.kernel.mapping import allocate, map_file
from d3gnn.kernel.memory import grown
from d3gnn.types import Ints

_MAGIC = 0x64_33_67_6E_6E  # "d3gnn"
#: What lies where in the arrays of operators: one more with every change of that.
_LAYOUT = 3
_HEADER_WORDS = 512
_COUNTERS = slice(64, _HEADER_WORDS)
_FIRST_ROWS = 64
_MOST_ROWS = 2**31 - 1
_LARGE = 2**28
_CHUNK_ROWS = 2**16


def peek_counters(folder: str | Path) -> Ints | None:
    """The counters of the space in a folder, without opening it; None where there is none to be read."""
    try:
        header = np.fromfile(Path(folder) / "header", np.int64, _HEADER_WORDS)
    except FileNotFoundError:
        return None
    return header[_COUNTERS] if header[:2].tolist() == [_MAGIC, _LAYOUT] else None


class StateLost(RuntimeError):
    """The arrays of an operator part do not belong to the version that was asked for."""


def open_file(path: Path, flags: int = 0) -> int:
    """A file among the arrays, to read and write; raises `StateLost` where their folder was deleted."""
    try:
        return os.open(path, os.O_RDWR | flags, 0o644)
    except FileNotFoundError:
        raise StateLost(f"{path} is gone: arrays were deleted while they were in use") from None


class GrowableArray:
    """An array whose first dimension grows; rows never written are zero.

    `data` is the whole capacity. Whoever keeps it must take it again after a `reserve`.
    """

    __slots__ = ("_space", "data", "dtype", "name", "row_bytes", "row_shape")

    def __init__(self, space: Space, name: str, dtype: DTypeLike, row_shape: tuple[int, ...]) -> None:
        self._space, self.name = space, name
        self.dtype, self.row_shape = np.dtype(dtype), row_shape
        self.row_bytes = self.dtype.itemsize * prod(row_shape)
        # Rows without columns (no edge features, say) take no room: there are always enough of them.
        self.data: Any = np.zeros((0 if self.row_bytes else _MOST_ROWS, *row_shape), self.dtype)

    def reserve(self, rows: int) -> None:
        """Make room for this many rows in all; growth in proportion keeps appends cheap on the whole."""
        if rows > len(self.data):
            more = int(len(self.data) * self._space.growth(self.data.nbytes))
            self._space._grow(self, min(max(rows, more, _FIRST_ROWS), max(rows, _MOST_ROWS)))

    def used_rows(self) -> int:
        """How many rows there are up to the last one that is not zero."""
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
    """Make room for this many rows in each of some arrays that have the same rows.

    They have the same length then, so that a look at one of them tells of all; on its own, each would grow by
    its own size.
    """
    widest = max(arrays, key=lambda array: array.row_bytes)
    widest.reserve(rows)
    for array in arrays:
        if array.row_bytes and len(array.data) < len(widest.data):
            array._space._grow(array, len(widest.data))


class Space:
    """The arrays of one operator part, in memory."""

    def __init__(self) -> None:
        self._arrays: dict[str, GrowableArray] = {}
        self._header: Ints = np.zeros(_HEADER_WORDS, np.int64)
        self._header[:2] = _MAGIC, _LAYOUT
        #: A fixed number of integers that live with the arrays.
        self.counters: Ints = self._header[_COUNTERS]
        #: Goes up whenever an array moves in memory.
        self.generation = 0

    @property
    def version(self) -> tuple[int, int]:
        """(epoch, batch) of the last batch that was taken in whole."""
        return int(self._header[3]), int(self._header[4])

    @property
    def dirty(self) -> bool:
        """Whether a batch was begun and not finished."""
        return bool(self._header[5])

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays up to the last row that was written. Looks at every row: for reports."""
        return sum(array.used_rows() * array.row_bytes for array in self._arrays.values())

    def array(self, name: str, dtype: DTypeLike, *row_shape: int) -> GrowableArray:
        """The array of this name, made empty where it is new."""
        array = self._arrays.get(name)
        if array is None:
            array = self._arrays[name] = GrowableArray(self, name, dtype, row_shape)
            self._open(array)
        return array

    def growth(self, nbytes: int) -> float:
        """By how much to grow an array of this size."""
        return 2.0 if nbytes < _LARGE else 1.5

    def begin(self) -> None:
        """From here on the arrays are between two versions."""
        self._header[5] = 1

    def commit(self, epoch: int, batch: int) -> None:
        """Stamp the version: the arrays are whole again."""
        self._header[3] = epoch
        self._header[4] = batch
        self._header[5] = 0

    def reset(self) -> None:
        """Forget everything; the arrays keep their room."""
        for array in self._arrays.values():
            array.clear()
        self.counters[:] = 0

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Alone with this space; in memory nobody else can be there."""
        yield

    def _open(self, array: GrowableArray) -> None:
        pass

    def _grow(self, array: GrowableArray, rows: int) -> None:
        array.data = grown(array.data, rows)
        self.generation += 1


class MappedSpace(Space):
    """The arrays of one operator part in memory-mapped files under `folder`."""

    def __init__(self, folder: str | Path) -> None:
        self._arrays = {}
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._file = os.open(self.folder / "header", os.O_RDWR | os.O_CREAT, 0o644)
        self._release = weakref.finalize(self, os.close, self._file)
        with self.locked():
            fresh = os.fstat(self._file).st_size < _HEADER_WORDS * 8
            if fresh:
                allocate(self._file, _HEADER_WORDS * 8, self.folder)
            self._header = map_file(self._file, _HEADER_WORDS * 8).view(np.int64)
            if fresh:
                self._header[0] = _MAGIC
            if self._header[0] == _MAGIC and (fresh or self._header[1] != _LAYOUT or self._lacks_files()):
                self._begin_anew()
        if self._header[0] != _MAGIC:
            raise StateLost(f"{self.folder} holds something else than arrays: choose another folder")
        self.counters = self._header[_COUNTERS]
        self.generation = int(self._header[2])

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Alone with this space among all processes of the host; takes in what they have grown."""
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            if self._arrays:
                self._follow()
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def reset(self) -> None:
        """Forget everything, also what this process has not opened."""
        super().reset()
        self._empty_unopened()
        self._header[2] += 1
        self.generation = int(self._header[2])

    def _lacks_files(self) -> bool:
        """Whether somebody has deleted arrays and left the header: what cleans temporary folders, say."""
        return len(list(self.folder.glob("*.array"))) < int(self._header[6])

    def _begin_anew(self) -> None:
        """What another release has left here, or half of it, is of no use: it counts as lost, and no version
        is there.
        """
        self._empty_unopened()
        generation = self._header[2] + 1
        self._header[1:] = 0
        self._header[1:3] = _LAYOUT, generation

    def _empty_unopened(self) -> None:
        for path in self.folder.glob("*.array"):
            if path.stem not in self._arrays:
                # Emptied, not deleted: another process may have this very file mapped, and must follow.
                os.truncate(path, 0)

    def growth(self, nbytes: int) -> float:
        """Growing a file moves nothing, and what is set aside is taken from the file system at once."""
        return 1.5 if nbytes < _LARGE else 1.125

    def is_current(self) -> bool:
        """Whether the files that are mapped here are still those in the folder."""
        try:
            return (self.folder / "header").stat().st_ino == os.fstat(self._file).st_ino
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Let go of the files; the views that were handed out stay valid as long as somebody holds them."""
        self._arrays.clear()
        self._release()

    def _follow(self) -> None:
        if self.generation != self._header[2]:
            for array in self._arrays.values():
                self._open(array)
            self.generation = int(self._header[2])

    def _path(self, array: GrowableArray) -> Path:
        return self.folder / f"{array.name}.array"

    def _open(self, array: GrowableArray) -> None:
        if array.row_bytes == 0 or not self._path(array).exists():
            return
        size = self._path(array).stat().st_size
        rows = size // array.row_bytes
        if rows != len(array.data):
            self._remap(array, rows)

    def _grow(self, array: GrowableArray, rows: int) -> None:
        is_new = not self._path(array).exists()
        file = open_file(self._path(array), os.O_CREAT)
        self._header[6] += is_new
        try:
            allocate(file, rows * array.row_bytes, self.folder)
        finally:
            os.close(file)
        self._remap(array, rows)
        self._header[2] += 1
        self.generation = int(self._header[2])

    def _remap(self, array: GrowableArray, rows: int) -> None:
        if rows == 0:
            array.data = np.zeros((0, *array.row_shape), array.dtype)
            return
        file = open_file(self._path(array))
        try:
            flat = map_file(file, rows * array.row_bytes)
        finally:
            os.close(file)
        array.data = flat.view(array.dtype).reshape(rows, *array.row_shape)
