"""Memory, and files mapped into it, in large pages where the system has them.

A row that a batch touches lies anywhere in gigabytes. With pages of 4 KB nearly every such row is a miss in
the processor's table of pages as well, which takes longer than the row itself; with pages of 2 MB it is not.
Memory of a process gets them for the asking. Files in memory (tmpfs) get them where they are asked for on the
spot, and mapped at an address that a large page could begin at.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from d3gnn.types import Array

#: Bytes of a large page.
LARGE_PAGE = 2**21
_NO_ACCESS, _READ_WRITE = 0, mmap.PROT_READ | mmap.PROT_WRITE
_PAGE, _NOT_NEEDED = mmap.PAGESIZE, getattr(mmap, "MADV_DONTNEED", 4)
_WANT_LARGE = getattr(mmap, "MADV_HUGEPAGE", 14)  # large pages for what is not there yet
_COLLAPSE = 25  # MADV_COLLAPSE, Linux 6.1: make large pages of what is there, now
_ON_DEMAND = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
_AT_ONCE = getattr(mmap, "MAP_POPULATE", 0)
_FAILED = ctypes.c_void_p(-1).value

_libc: Any = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_longlong
]  # fmt: skip
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class NoSpaceLeft(OSError):
    """The file system that holds the arrays is full."""


@contextmanager
def no_room_for(size: int, folder: Path) -> Iterator[None]:
    """Say plainly what was full, and what helps, where so many bytes do not fit into a folder."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise NoSpaceLeft(
            errno.ENOSPC,
            f"no room for {size:,} bytes: the file system is full; free some, "
            "or keep the arrays somewhere larger",
            str(folder),
        ) from error


def allocate(file: int, size: int, folder: Path) -> None:
    """Make a file of `folder` so many bytes long, all of which are there: or say that they are not, and leave
    it as it was.

    A sparse file on a full tmpfs would kill the process at the first write.
    """
    had = os.fstat(file).st_size
    try:
        with no_room_for(size, folder):
            if size // LARGE_PAGE > had // LARGE_PAGE:
                os.ftruncate(file, size)
                _make_large(file, had, size)
            os.posix_fallocate(file, 0, size)
    except OSError:
        os.ftruncate(file, had)
        raise


def map_file(file: int, size: int, *, whole: bool = False) -> Array:
    """So many bytes from a file's beginning, shared with all who map it; there as long as anybody holds it.

    The file may be closed, or deleted. Pages are looked up when they are first used, or, for those who will
    use the `whole`, all at once: a tenth of the time for each.
    """
    return np.asarray(_Mapping(file, 0, size, mmap.MAP_SHARED | (_AT_ONCE if whole else 0)))


def map_memory(size: int) -> Array:
    """So many bytes of this process, all zero, that take no room before they are written."""
    mapping = _Mapping(-1, 0, size, _ON_DEMAND)
    _libc.madvise(mapping.address, size, _WANT_LARGE)  # no harm where there are none
    return np.asarray(mapping)


def give_back(stretch: Array) -> None:
    """Let the system have a stretch of `map_memory` until it is written again; it is zero then."""
    address = stretch.__array_interface__["data"][0]  # which works while Python shuts down, too
    begin, end = -(-address // _PAGE) * _PAGE, (address + stretch.nbytes) // _PAGE * _PAGE
    if end > begin:
        _libc.madvise(begin, end - begin, _NOT_NEEDED)


class _Mapping:
    """A mapped stretch, for numpy to look at; it goes when the last array over it goes."""

    def __init__(self, file: int, begin: int, size: int, flags: int = mmap.MAP_SHARED) -> None:
        self.size = size
        # Python's own mmap says nothing of the address, and holds a descriptor for each map.
        wanted = _large_page_address(size) if size >= LARGE_PAGE else None
        self.address = _libc.mmap(wanted, size, _READ_WRITE, flags, file, begin)
        if self.address == _FAILED:
            number = ctypes.get_errno()
            raise OSError(number, f"cannot map {size:,} bytes: {os.strerror(number)}")

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {"data": (self.address, False), "shape": (self.size,), "typestr": "|u1", "version": 3}

    def __del__(self) -> None:
        if getattr(self, "address", _FAILED) != _FAILED:
            _libc.munmap(self.address, self.size)


def _large_page_address(size: int) -> int | None:
    """Where so much would fit, at an address that a large page may begin at. Nobody keeps it free: it is a
    wish, and the system may choose another.
    """
    room = size + LARGE_PAGE
    found = _libc.mmap(None, room, _NO_ACCESS, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    if found == _FAILED:
        return None
    _libc.munmap(found, room)
    return int(-(-found // LARGE_PAGE) * LARGE_PAGE)


def _make_large(file: int, had: int, size: int) -> None:
    """Make large pages of what the file has grown by, where the system can."""
    first, end = had // LARGE_PAGE * LARGE_PAGE, size // LARGE_PAGE * LARGE_PAGE
    stretch = _Mapping(file, first, end - first)
    for begin in range(first, end, LARGE_PAGE):
        if begin >= had:  # a large page is made where there is a small one
            os.pwrite(file, b"\0", begin)
    # Whatever comes of it, the bytes are there: other kernels and file systems refuse, and small pages do.
    _libc.madvise(stretch.address, stretch.size, _COLLAPSE)
