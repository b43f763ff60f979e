"""The state of one operator part in memory-mapped files, shared by the processes of a host.

One process can continue where another one stopped: the header holds the version, whether a batch was
interrupted, and a generation, which increases whenever an array grows and must be mapped again.

A checksum of all arrays cannot be kept up to date in every batch. When a query ends, its arrays may be
sealed: the header then holds their checksum, until the next batch begins. A process that opens sealed arrays
checks it.
"""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
import time
import weakref
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from d3gnn.kernel.arrays import GrowableArray
from d3gnn.kernel.mapping import allocate, map_file
from d3gnn.kernel.part_state import (
    BYTES,
    DIRTY,
    FILES,
    GENERATION,
    HEADER_WORDS,
    LAYOUT,
    MAGIC,
    SEAL,
    PartState,
    find_counters,
    is_large,
)
from d3gnn.private import open_private, private_folder, read_private
from d3gnn.types import Ints

log = logging.getLogger("d3gnn")
#: How long to wait for the end of a batch before sealing, and between two attempts.
_PATIENCE, _PAUSE = 2.0, 0.05


def peek_counters(folder: str | Path, name: str) -> Ints | None:
    """The counters of this name in a folder, without opening the state; None if there are none."""
    try:
        content = read_private(Path(folder) / "header")
    except FileNotFoundError:
        return None
    header = np.frombuffer(content[: HEADER_WORDS * 8].ljust(HEADER_WORDS * 8, b"\0"), np.int64)
    return find_counters(header, name) if header[:2].tolist() == [MAGIC, LAYOUT] else None


def seal(folder: str | Path) -> bool:
    """Seal the arrays of an operator part; False if they are in the middle of a batch, or missing."""
    folder = Path(folder)
    try:
        file = open_private(folder / "header", os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        if os.fstat(file).st_size < HEADER_WORDS * 8 or not _lock_soon(file):
            return False
        header = map_file(file, HEADER_WORDS * 8).view(np.int64)
        if header[:2].tolist() != [MAGIC, LAYOUT] or header[DIRTY]:
            return False
        if not header[SEAL]:
            header[SEAL] = _checksum(folder, header, 1 + secrets.randbelow(2**30))
        return True
    finally:
        os.close(file)


def _lock_soon(file: int) -> bool:
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(_PAUSE)
        else:
            return True


def _checksum(folder: Path, header: Ints, number: int) -> int:
    """A checksum of the names and contents of all arrays, and of the header. The number in front of it makes
    every seal another one.
    """
    # Words between the version and the counters may change between batches.
    found = zlib.crc32(np.concatenate([header[:8], header[16:]]).tobytes(), number)
    for path in sorted(folder.glob("*.array")):
        file = open_file(path)
        try:
            size = os.fstat(file).st_size
            found = zlib.crc32(f"{path.name} {size}".encode(), found)
            if size:
                found = zlib.crc32(map_file(file, size).data, found)
        finally:
            os.close(file)
    return number << 32 | found


class StateLost(RuntimeError):
    """The arrays of an operator part are missing, damaged, or of another version than the batch needs."""


def open_file(path: Path, flags: int = 0) -> int:
    """Open one of the array files to read and write; raises `StateLost` if their folder was deleted."""
    try:
        return open_private(path, os.O_RDWR | flags)
    except FileNotFoundError:
        raise StateLost(f"{path} is missing: arrays were deleted while they were in use") from None


class MappedPartState(PartState):
    """The arrays of one operator part in memory-mapped files under `folder`."""

    def __init__(self, folder: str | Path) -> None:
        self._arrays = {}
        #: Whether another process has changed arrays that were open here.
        self.is_changed = False
        self.folder = private_folder(folder)
        self._file = open_private(self.folder / "header", os.O_RDWR | os.O_CREAT)
        self._release = weakref.finalize(self, os.close, self._file)
        with self.locked():
            fresh = os.fstat(self._file).st_size < HEADER_WORDS * 8
            if fresh:
                allocate(self._file, HEADER_WORDS * 8, self.folder)
            self._header = map_file(self._file, HEADER_WORDS * 8).view(np.int64)
            if fresh:
                self._header[0] = MAGIC
            if self._header[0] == MAGIC and (fresh or self._header[1] != LAYOUT or self._lacks_files()):
                self._start_empty()
            elif self._header[0] == MAGIC and self._is_damaged():
                log.warning(
                    "the arrays in %s were damaged after the last run: they are rebuilt from the graph log",
                    self.folder,
                )
                self._start_empty()
        if self._header[0] != MAGIC:
            raise StateLost(f"{self.folder} holds other files than arrays: choose another folder")
        self.generation = int(self._header[GENERATION])
        #: The newest seal that this process has compared.
        self._compared = int(self._header[SEAL])

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Exclude all other processes of the host; maps the arrays again that they have grown."""
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self._holds_lock = True
        try:
            if self._arrays:
                self.remap_grown()
            yield
        finally:
            self._holds_lock = False
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def reset(self) -> None:
        """Set everything to zero, also arrays that this process has not opened."""
        super().reset()
        self._empty_unopened()
        self._header[GENERATION] += 1
        self.generation = int(self._header[GENERATION])

    def was_damaged(self) -> bool:
        """Whether the arrays were sealed since this process opened them, and are not as they were: then they
        must be opened again, which makes them empty.
        """
        # Opening them again needs the lock, which must not be taken twice.
        if self._holds_lock or self._header[SEAL] in (0, self._compared):
            return False
        with self.locked():
            if self._is_damaged():
                return True
            self._compared = int(self._header[SEAL])
        return False

    def _is_damaged(self) -> bool:
        """Whether sealed arrays are not as they were."""
        kept = int(self._header[SEAL])
        return kept != 0 and kept != _checksum(self.folder, self._header, kept >> 32)

    def _lacks_files(self) -> bool:
        """Whether array files were deleted or cut and the header was not, for example by a cleaner of
        temporary folders.
        """
        sizes = self._sizes()
        return len(sizes) < int(self._header[FILES]) or sum(sizes) < int(self._header[BYTES])

    def _sizes(self) -> list[int]:
        return [path.stat().st_size for path in self.folder.glob("*.array")]

    def _start_empty(self) -> None:
        """Arrays of another layout, or incomplete ones, count as lost: start empty, without a version."""
        self._empty_unopened()
        generation = self._header[GENERATION] + 1
        self._header[1:] = 0
        self._header[1:3] = LAYOUT, generation

    def _empty_unopened(self) -> None:
        # A process that opens the files meanwhile must never find fewer bytes than the header says.
        self._header[BYTES] = 0
        for path in self.folder.glob("*.array"):
            if path.stem not in self._arrays:
                # Truncated, not deleted: another process may have this file mapped, and must see the change.
                os.close(open_file(path, os.O_TRUNC))
        self._header[BYTES] = sum(self._sizes())

    def growth(self, nbytes: int) -> float:
        """The factor is smaller than in memory: growing a file copies nothing, but allocates its space at
        once.
        """
        return 1.125 if is_large(nbytes) else 1.5

    def is_current(self) -> bool:
        """Whether the folder still holds the files that are mapped here."""
        try:
            return (self.folder / "header").stat().st_ino == os.fstat(self._file).st_ino
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Close the files; views that are still referenced stay valid."""
        self._arrays.clear()
        self._release()

    def remap_grown(self) -> None:
        """Map the arrays again that other processes have grown."""
        if self.generation != self._header[GENERATION]:
            self.is_changed = self.is_changed or bool(self._arrays)
            for array in self._arrays.values():
                self._open(array)
            self.generation = int(self._header[GENERATION])

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
        self._header[FILES] += is_new
        self._header[SEAL] = 0
        try:
            before = os.fstat(file).st_size
            allocate(file, rows * array.row_bytes, self.folder)
            self._header[BYTES] += rows * array.row_bytes - before
        finally:
            os.close(file)
        self._remap(array, rows)
        self._header[GENERATION] += 1
        self.generation = int(self._header[GENERATION])

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
