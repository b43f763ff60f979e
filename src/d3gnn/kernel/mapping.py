"""Memory, and files mapped into it, in large pages where the system has them.

The rows that a batch touches are spread over gigabytes. With pages of 4 KB nearly every row also misses the
TLB, which takes longer than reading the row; with pages of 2 MB it does not. Anonymous memory gets large
pages by one madvise call. Files in memory (tmpfs) get them by collapsing pages that exist, mapped at an
address at which a large page can begin.
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
_WANT_LARGE = getattr(mmap, "MADV_HUGEPAGE", 14)  # large pages for memory that is not allocated yet
_COLLAPSE = 25  # MADV_COLLAPSE, Linux 6.1: make large pages of existing ones, now
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
def reporting_full_disk(size: int, folder: Path) -> Iterator[None]:
    """Raise `NoSpaceLeft`, with what to do, where this many bytes do not fit into a folder."""
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
    """Make a file of `folder` this many bytes long, with all of them allocated; raises `NoSpaceLeft`, and
    leaves the file as it was, if they do not fit.

    A sparse file on a full tmpfs would kill the process at the first write.
    """
    old = os.fstat(file).st_size
    try:
        with reporting_full_disk(size, folder):
            if size // LARGE_PAGE > old // LARGE_PAGE:
                os.ftruncate(file, size)
                _make_large(file, old, size)
            os.posix_fallocate(file, 0, size)
    except OSError:
        os.ftruncate(file, old)
        raise


def map_file(file: int, size: int, *, whole: bool = False) -> Array:
    """The first bytes of a file, shared with all processes that map it, as long as the array is referenced.

    The file may be closed or deleted meanwhile. Pages are mapped when they are first used, or with `whole`
    all at once, which takes a tenth of the time for each.
    """
    return np.asarray(_Mapping(file, 0, size, mmap.MAP_SHARED | (_AT_ONCE if whole else 0)))


def map_memory(size: int) -> Array:
    """This many zero bytes of memory, which is allocated when it is written."""
    mapping = _Mapping(-1, 0, size, _ON_DEMAND)
    _libc.madvise(mapping.address, size, _WANT_LARGE)  # ignored where there are none
    return np.asarray(mapping)


def give_back(memory: Array) -> None:
    """Return memory of `map_memory` to the system until it is written again; it is zero then."""
    address = memory.__array_interface__["data"][0]  # which also works while Python shuts down
    begin, end = -(-address // _PAGE) * _PAGE, (address + memory.nbytes) // _PAGE * _PAGE
    if end > begin:
        _libc.madvise(begin, end - begin, _NOT_NEEDED)


class _Mapping:
    """Mapped memory under numpy arrays; unmapped when the last of them is deleted."""

    def __init__(self, file: int, begin: int, size: int, flags: int = mmap.MAP_SHARED) -> None:
        self.size = size
        # Python's mmap does not take an address, and keeps a file descriptor for each map.
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
    """A free address for this many bytes at which a large page can begin. It is not reserved: a hint, instead
    of which the system may choose another one.
    """
    padded = size + LARGE_PAGE
    address = _libc.mmap(None, padded, _NO_ACCESS, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    if address == _FAILED:
        return None
    _libc.munmap(address, padded)
    return int(-(-address // LARGE_PAGE) * LARGE_PAGE)


def _make_large(file: int, old: int, size: int) -> None:
    """Make large pages of the part that the file has grown by, where the system can."""
    first, end = old // LARGE_PAGE * LARGE_PAGE, size // LARGE_PAGE * LARGE_PAGE
    added = _Mapping(file, first, end - first)
    for begin in range(first, end, LARGE_PAGE):
        if begin >= old:  # only existing pages are collapsed
            os.pwrite(file, b"\0", begin)
    # The result is ignored: other kernels and file systems refuse, and small pages work as well.
    _libc.madvise(added.address, added.size, _COLLAPSE)
