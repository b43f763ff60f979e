"""An outbox: the files, beside the arrays of an operator part, with the packets that it sends in a batch.

Spark carries the place of each packet, and the parts of the next operator read it there. A retried batch
finds the packets that were sent before. There are two files, for even and odd batches: when one is
overwritten, all parts of the next operator have processed a later batch, and none reads the earlier one.

A file that would take much of the memory, as when a large graph is loaded in a few batches, is kept on disk.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable
from pathlib import Path

from d3gnn.kernel.blocks import Block
from d3gnn.kernel.mapped_state import StateLost, open_file
from d3gnn.kernel.mapping import allocate, map_file
from d3gnn.private import open_private, private_folder
from d3gnn.runtime.packets import Packets, make_packets
from d3gnn.runtime.version import BatchVersion

_HEAD = struct.Struct("<8sqqqq")  # followed by the targets and the ends of the packets
_MAGIC = b"d3sent01"
_ALIGN = 64
#: A file this many times larger than its packets is truncated.
_WASTE = 4
#: Files larger than this are kept on disk.
LARGE = 128 * 2**20


class Outbox:
    """The outbox of one operator part: beside its arrays, or in the folder `large` where it is too large.

    make:
        Makes the folder `large`, and checks that it belongs to this user.
    """

    def __init__(
        self, folder: Path, large: Path | None = None, make: Callable[[Path], object] = private_folder
    ) -> None:
        self._folder, self._large, self._make = folder, large or folder, make

    def put(
        self,
        version: BatchVersion,
        source: int,
        targets: int,
        blocks: Iterable[Block],
        limit: int | None = None,
    ) -> Packets:
        """Write the blocks of a batch: one packet for each part of the next operator, or with a `limit`
        several of at most so many bytes.
        """

        def room(to: list[int], ends: list[int]) -> Packets:
            table = struct.Struct(f"<{2 * len(to)}q")
            first = _aligned(_HEAD.size + table.size)
            path = self._place(version, first + ends[-1])
            view = self._map(path, first + ends[-1])
            # Written first: readers trust it only once the arrays carry the version, after the packets.
            _HEAD.pack_into(view, 0, _MAGIC, version.epoch, version.batch, len(to), first)
            table.pack_into(view, _HEAD.size, *to, *ends)
            return Packets(to, ends, view[first:], str(path))

        return make_packets(version, source, targets, blocks, limit=limit, room=room)

    def get(self, version: BatchVersion) -> Packets | None:
        """The packets of this batch; None if they are not here."""
        for folder in {self._folder, self._large}:
            path = folder / _name(version)
            try:
                view, count, first = _open(path, version)
            except StateLost:
                continue
            numbers = struct.unpack_from(f"<{2 * count}q", view, _HEAD.size)
            ends = list(numbers[count:])
            return Packets(list(numbers[:count]), ends, view[first : first + ends[-1]], str(path))
        return None

    def clear(self) -> None:
        """Delete all files. Readers that have mapped one keep it."""
        for folder in {self._folder, self._large}:
            for path in folder.glob("outbox-*"):
                path.unlink(missing_ok=True)

    def _place(self, version: BatchVersion, size: int) -> Path:
        """The file for this many bytes; removes one of an earlier batch from the other folder."""
        here, other = (self._large, self._folder) if size > LARGE else (self._folder, self._large)
        if here != other:
            if here == self._large:
                self._make(here)
            else:
                here.mkdir(0o700, parents=True, exist_ok=True)
            (other / _name(version)).unlink(missing_ok=True)
        return here / _name(version)

    def _map(self, path: Path, size: int) -> memoryview:
        file = open_file(path, os.O_CREAT)
        try:
            existing = os.fstat(file).st_size
            if existing > _WASTE * size:
                os.ftruncate(file, size)
            elif existing < size:
                allocate(file, size, path.parent)
            return map_file(file, size, whole=True).data
        finally:
            os.close(file)


def _name(version: BatchVersion) -> str:
    return f"outbox-{version.epoch}-{version.batch % 2}"


def read_outbox(path: str, version: BatchVersion) -> memoryview:
    """The packets of this batch in the file of an outbox; raises `StateLost` if they are not there."""
    view, _, first = _open(Path(path), version)
    return view[first:]


def _open(path: Path, version: BatchVersion) -> tuple[memoryview, int, int]:
    """The file, the number of its packets, and the begin of the first one."""
    try:
        file = open_private(path, os.O_RDWR)
    except FileNotFoundError:
        raise StateLost(
            f"{path}, which held the packets of batch {version.batch}, was deleted: start the query again to "
            "rebuild its state from the graph log"
        ) from None
    try:
        # Writable, although nothing is written: to compiled code, a read-only array is another type, for
        # which it would be compiled again.
        view = map_file(file, os.fstat(file).st_size).data
    finally:
        os.close(file)
    magic, epoch, batch, count, first = _HEAD.unpack_from(view, 0)
    if (magic, epoch, batch) != (_MAGIC, version.epoch, version.batch):
        raise StateLost(
            f"{path} holds the packets of batch {batch} of epoch {epoch}, but batch {version.batch} of epoch "
            f"{version.epoch} is being processed"
        )
    return view, count, first


def _aligned(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN
