"""An outbox: the files, beside the arrays of an operator part, that hold all that it sends in a batch.

Spark carries where to find it, and the parts of the next operator read it in place. A batch that comes again
finds in it what was sent before. There are two files, for even and odd batches: when one is written over, all
parts of the next operator have taken in a later batch, and none of them looks for the earlier one any more.

A file that would take much of the memory, as when a large graph is loaded in a few batches, lies on disk.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from pathlib import Path

from d3gnn.kernel.arrays import StateLost, open_file
from d3gnn.kernel.blocks import Block
from d3gnn.kernel.mapping import allocate, map_file
from d3gnn.spark.parcels import Parcels, Stamp, pack_parcels

_HEAD = struct.Struct("<8sqqqq")  # then targets and ends of the parcels
_MAGIC = b"d3sent01"
_ALIGN = 64
#: A file that is so many times larger than what it holds gives room back.
_WASTE = 4
#: Files larger than this do not belong into memory.
LARGE = 128 * 2**20


class Outbox:
    """The outbox of one operator part: beside its arrays, or in a folder for what is too large for that."""

    def __init__(self, folder: Path, large: Path | None = None) -> None:
        self._folder, self._large = folder, large or folder

    def send(self, stamp: Stamp, source: int, targets: int, blocks: Iterable[Block]) -> Parcels:
        """Put the blocks of a batch in: one parcel for each part of the next operator."""

        def room(to: list[int], ends: list[int]) -> Parcels:
            table = struct.Struct(f"<{2 * len(to)}q")
            first = _aligned(_HEAD.size + table.size)
            path = self._place(stamp, first + ends[-1])
            view = self._map(path, first + ends[-1])
            # Nobody takes this for whole before the version of the arrays says so.
            _HEAD.pack_into(view, 0, _MAGIC, stamp.epoch, stamp.batch, len(to), first)
            table.pack_into(view, _HEAD.size, *to, *ends)
            return Parcels(to, ends, view[first:], str(path))

        return pack_parcels(stamp, source, targets, blocks, limit=None, room=room)

    def sent(self, stamp: Stamp) -> Parcels | None:
        """What was sent in this batch, if it is here."""
        for folder in {self._folder, self._large}:
            path = folder / _name(stamp)
            try:
                view, count, first = _open(path, stamp)
            except StateLost:
                continue
            numbers = struct.unpack_from(f"<{2 * count}q", view, _HEAD.size)
            ends = list(numbers[count:])
            return Parcels(list(numbers[:count]), ends, view[first : first + ends[-1]], str(path))
        return None

    def clear(self) -> None:
        """Forget everything. Whoever is still reading it may go on."""
        for folder in {self._folder, self._large}:
            for path in folder.glob("sent-*"):
                path.unlink(missing_ok=True)

    def _place(self, stamp: Stamp, size: int) -> Path:
        """The file for so many bytes; one in the other folder is of an earlier batch."""
        here, other = (self._large, self._folder) if size > LARGE else (self._folder, self._large)
        if here != other:
            here.mkdir(parents=True, exist_ok=True)
            (other / _name(stamp)).unlink(missing_ok=True)
        return here / _name(stamp)

    def _map(self, path: Path, size: int) -> memoryview:
        file = open_file(path, os.O_CREAT)
        try:
            has = os.fstat(file).st_size
            if has > _WASTE * size:
                os.ftruncate(file, size)
            elif has < size:
                allocate(file, size, path.parent)
            return map_file(file, size, whole=True).data
        finally:
            os.close(file)


def _name(stamp: Stamp) -> str:
    return f"sent-{stamp.epoch}-{stamp.batch % 2}"


def read_sent(path: str, stamp: Stamp) -> memoryview:
    """The parcels that an operator part has put into this file for this batch."""
    view, _, first = _open(Path(path), stamp)
    return view[first:]


def _open(path: Path, stamp: Stamp) -> tuple[memoryview, int, int]:
    """The file, how many parcels it holds, and where the first begins."""
    try:
        file = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        raise StateLost(f"{path} is gone, which held what was sent in batch {stamp.batch}") from None
    try:
        # Writable, although nobody writes: compiled code takes read-only arrays for another type, and would
        # be compiled twice.
        view = map_file(file, os.fstat(file).st_size).data
    finally:
        os.close(file)
    magic, epoch, batch, count, first = _HEAD.unpack_from(view, 0)
    if (magic, epoch, batch) != (_MAGIC, stamp.epoch, stamp.batch):
        raise StateLost(
            f"{path} holds what was sent in batch {batch} of epoch {epoch}, but batch {stamp.batch} of epoch "
            f"{stamp.epoch} is being taken in"
        )
    return view, count, first


def _aligned(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN
