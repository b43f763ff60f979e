"""Parcels: blocks on their way from an operator part to the parts of the next operator.

One parcel is one row. Every operator part sends every part of the next operator at least one parcel in every
batch, so that all of them run; each says how many there are, so that a lost one is noticed. What is in a
parcel travels with it, at most 1 MB in each; or it lies in a file of the host, and the parcel says where.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from d3gnn.kernel.blocks import Block, pack_into, packed_size, split, unpack
from d3gnn.kernel.operators.base import Moment

Bytes = bytes | bytearray | memoryview

#: Rows of this size, two or so in an Arrow batch, come to Python in half the time that large ones take.
IN_ROWS = 2**20
_HEAD = struct.Struct("<4sBBBxqqqiiii")
_MAGIC = b"d3p3"
_LENGTH = struct.Struct("<Q")
_PLACE = struct.Struct("<QQ")
_ALIGN = 64
_FIRST = -(-_HEAD.size // _ALIGN) * _ALIGN


class Stamp(NamedTuple):
    """Which version the blocks of a batch belong to, and when it is taken in."""

    epoch: int
    batch: int
    refresh: bool  # everything begins anew with this batch
    clock: int = 0  # microseconds; the same when the batch comes again
    drain: bool = False  # nothing may stay pending

    @property
    def moment(self) -> Moment:
        # The very first batch has nothing before it that could have been told.
        return Moment(self.clock, self.drain or self.refresh, anew=self.refresh and self.batch > 0)


class BlocksLost(RuntimeError):
    """Some of the blocks of a batch did not arrive."""


class Head(NamedTuple):
    """What every parcel begins with."""

    stamp: Stamp
    source: int
    target: int
    sequence: int  # among the parcels from this source to this target
    total: int  # how many of them there are
    elsewhere: bool = False  # only says where to find what is in it

    def put(self, parcel: bytearray | memoryview) -> None:
        epoch, batch, refresh, clock, drain = self.stamp
        _HEAD.pack_into(
            parcel, 0, _MAGIC, int(refresh), int(self.elsewhere), int(drain), epoch, batch, clock,
            self.source, self.target, self.sequence, self.total,
        )  # fmt: skip

    @staticmethod
    def of(parcel: Bytes) -> Head:
        magic, refresh, elsewhere, drain, epoch, batch, clock, source, target, sequence, total = (
            _HEAD.unpack_from(parcel, 0)
        )
        if magic != _MAGIC:
            raise ValueError(
                "this row is not a parcel of blocks: was the DataFrame between two operators changed?"
            )
        stamp = Stamp(epoch, batch, bool(refresh), clock, bool(drain))
        return Head(stamp, source, target, sequence, total, bool(elsewhere))


@dataclass(slots=True)
class Parcels:
    """What an operator part sends in a batch: parcels end to end, as they go into files and Arrow arrays."""

    targets: list[int]
    ends: list[int]
    data: Bytes
    #: The file that holds them, if any.
    file: str | None = None

    def __len__(self) -> int:
        return len(self.targets)

    def __iter__(self) -> Iterator[tuple[int, memoryview]]:
        view, begin = memoryview(self.data), 0
        for target, end in zip(self.targets, self.ends, strict=True):
            yield target, view[begin:end]
            begin = end

    @property
    def nbytes(self) -> int:
        return len(self.data)

    def for_rows(self) -> Parcels:
        """The parcels that Spark carries: these, or ones that say where in their file these are."""
        if self.file is None:
            return self
        path, begin, rows = self.file.encode(), 0, bytearray()
        ends = []
        for (_, parcel), end in zip(self, self.ends, strict=True):
            row = bytearray(_FIRST + _PLACE.size)
            Head.of(parcel)._replace(elsewhere=True).put(row)
            _PLACE.pack_into(row, _FIRST, begin, end)
            rows += row + path
            ends.append(len(rows))
            begin = end
        return Parcels(self.targets, ends, rows)


def pack_parcels(
    stamp: Stamp,
    source: int,
    targets: int,
    blocks: Iterable[Block],
    limit: int | None = IN_ROWS,
    room: Callable[[list[int], list[int]], Parcels] | None = None,
) -> Parcels:
    """The blocks of one operator part, for each part of the next operator.

    No parcel is larger than `limit`, unless a single row of a block is; without one, there is one parcel for
    each target. `room` makes the place for them, from the targets of the parcels and their ends.
    """
    mine: list[list[Block]] = [[] for _ in range(targets)]
    for block in blocks:
        mine[block.target].append(block)
    plan = [(target, load) for target in range(targets) for load in _loads(mine[target], limit)]
    ends = list(accumulate(_FIRST + sum(_with_length(size) for _, size in load) for _, load in plan))
    packed = (room or _in_memory)([target for target, _ in plan], ends)
    counts = Counter(packed.targets)
    sequences = [count for target in range(targets) for count in range(counts[target])]
    for (target, load), sequence, (_, parcel) in zip(plan, sequences, packed, strict=True):
        Head(stamp, source, target, sequence, counts[target]).put(parcel)
        at = _FIRST
        for block, size in load:
            _LENGTH.pack_into(parcel, at, size)
            pack_into(block, parcel[at + _ALIGN : at + _ALIGN + size])
            at += _with_length(size)
    return packed


def _in_memory(targets: list[int], ends: list[int]) -> Parcels:
    return Parcels(targets, ends, bytearray(ends[-1]))


def _loads(blocks: Iterable[Block], limit: int | None) -> list[list[tuple[Block, int]]]:
    """What goes into each parcel for one target, at least one parcel: blocks and their sizes when packed."""
    if limit is None:
        return [[(block, packed_size(block)) for block in blocks]]
    loads: list[list[tuple[Block, int]]] = [[]]
    room = limit
    for block in blocks:
        for piece in split(block, limit - 2 * _ALIGN):
            size = packed_size(piece)
            if size > room and loads[-1]:
                loads.append([])
                room = limit
            loads[-1].append((piece, size))
            room -= _with_length(size)
    return loads


def _with_length(size: int) -> int:
    """Bytes of a packed block with its length before it, each aligned."""
    return _ALIGN + -(-size // _ALIGN) * _ALIGN


@dataclass(slots=True)
class Delivery:
    """The parcels of one part in a batch, whole: of one version, and none is missing."""

    stamp: Stamp
    parcels: list[tuple[Head, Bytes]]

    @staticmethod
    def of(parcels: Iterable[Bytes], sources: int) -> Delivery:
        """Check the parcels that came from so many parts; looks at their heads alone."""
        found: dict[tuple[int, int], tuple[Head, Bytes]] = {}
        for parcel in parcels:
            head = Head.of(parcel)
            found.setdefault((head.source, head.sequence), (head, parcel))  # the same row may come twice
        stamps = {head.stamp for head, _ in found.values()}
        if len(stamps) > 1:
            raise BlocksLost(f"blocks of different versions in one batch: {sorted(stamps)}")
        got = Counter(source for source, _ in found)
        wanted = {head.source: head.total for head, _ in found.values()}
        if len(got) != sources or got != Counter(wanted):
            came = {source: f"{count}/{wanted[source]}" for source, count in sorted(got.items())}
            raise BlocksLost(f"expected the parcels of {sources} parts, got {came}")
        return Delivery(stamps.pop(), list(found.values()))

    def blocks(self, read: Callable[[str, Stamp], memoryview]) -> list[Block]:
        """All blocks, as views of their bytes; `read` gives what the file of a batch holds."""
        blocks: list[Block] = []
        for head, parcel in self.parcels:
            view = memoryview(parcel)
            if head.elsewhere:
                begin, end = _PLACE.unpack_from(view, _FIRST)
                path = bytes(view[_FIRST + _PLACE.size :]).decode()
                view = read(path, self.stamp)[begin:end]
            at = _FIRST
            while at < len(view):
                (length,) = _LENGTH.unpack_from(view, at)
                at += _ALIGN
                block = unpack(view[at : at + length])
                block.sequence += head.sequence << 16
                blocks.append(block)
                at += _with_length(length) - _ALIGN
        return blocks
