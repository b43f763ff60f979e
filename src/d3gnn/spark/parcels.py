"""Parcels: blocks on their way through Spark. One parcel is one row, of at most 1 MB.

Every operator part sends every part of the next operator at least one parcel in every batch, so that all of
them run; each says how many there are, so that a lost one is noticed.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from d3gnn.kernel.blocks import Block, pack_into, packed_size, split, unpack

#: Rows of this size, two or so in an Arrow batch, come to Python in half the time that large ones take.
_LIMIT = 2**20
_HEAD = struct.Struct("<4sBxxxqqiiii")
_MAGIC = b"d3p1"
_LENGTH = struct.Struct("<Q")
_ALIGN = 64
_FIRST = -(-_HEAD.size // _ALIGN) * _ALIGN


class Stamp(NamedTuple):
    """Which version the blocks of a batch belong to."""

    epoch: int
    batch: int
    refresh: bool  # everything begins anew with this batch


class BlocksLost(RuntimeError):
    """Some of the blocks of a batch did not arrive."""


@dataclass(slots=True)
class Parcels:
    """What an operator part sends in a batch: parcels end to end, as they go into files and Arrow arrays."""

    targets: list[int]
    ends: list[int]
    data: bytes | bytearray

    def __len__(self) -> int:
        return len(self.targets)

    def __iter__(self) -> Iterator[tuple[int, memoryview]]:
        view, begin = memoryview(self.data), 0
        for target, end in zip(self.targets, self.ends, strict=True):
            yield target, view[begin:end]
            begin = end


def pack_parcels(stamp: Stamp, source: int, targets: int, blocks: Iterable[Block]) -> Parcels:
    """The blocks of one operator part, for each part of the next operator."""
    mine: list[list[Block]] = [[] for _ in range(targets)]
    for block in blocks:
        mine[block.target].append(block)
    plan = [(target, load) for target in range(targets) for load in _loads(mine[target])]
    sizes = [_FIRST + sum(_with_length(size) for _, size in load) for _, load in plan]
    packed = Parcels([target for target, _ in plan], list(accumulate(sizes)), bytearray(sum(sizes)))
    counts = Counter(packed.targets)
    sequences = [count for target in range(targets) for count in range(counts[target])]
    for (target, load), sequence, (_, parcel) in zip(plan, sequences, packed, strict=True):
        count = counts[target]
        _HEAD.pack_into(
            parcel, 0, _MAGIC, int(stamp.refresh), stamp.epoch, stamp.batch, source, target, sequence, count
        )
        at = _FIRST
        for block, size in load:
            _LENGTH.pack_into(parcel, at, size)
            pack_into(block, parcel[at + _ALIGN : at + _ALIGN + size])
            at += _with_length(size)
    return packed


def _loads(blocks: Iterable[Block]) -> list[list[tuple[Block, int]]]:
    """What goes into each parcel for one target, at least one parcel: blocks and their sizes when packed."""
    loads: list[list[tuple[Block, int]]] = [[]]
    room = _LIMIT
    for block in blocks:
        for piece in split(block, _LIMIT - 2 * _ALIGN):
            size = packed_size(piece)
            if size > room and loads[-1]:
                loads.append([])
                room = _LIMIT
            loads[-1].append((piece, size))
            room -= _with_length(size)
    return loads


def _with_length(size: int) -> int:
    """Bytes of a packed block with its length before it, each aligned."""
    return _ALIGN + -(-size // _ALIGN) * _ALIGN


def unpack_parcels(
    parcels: Iterable[bytes | bytearray | memoryview], sources: int
) -> tuple[Stamp, list[Block]]:
    """The stamp and all blocks of one part's parcels; checks that none is missing."""
    stamps: set[Stamp] = set()
    seen: dict[int, set[int]] = {}
    wanted: dict[int, int] = {}
    blocks: list[Block] = []
    for parcel in parcels:
        magic, refresh, epoch, batch, source, _, sequence, count = _HEAD.unpack_from(parcel, 0)
        if magic != _MAGIC:
            raise ValueError(
                "this row is not a parcel of blocks: was the DataFrame between two operators changed?"
            )
        stamps.add(Stamp(epoch, batch, bool(refresh)))
        if sequence in seen.setdefault(source, set()):
            continue  # the same row twice
        seen[source].add(sequence)
        wanted[source] = count
        at, view = _FIRST, memoryview(parcel)
        while at < len(view):
            (length,) = _LENGTH.unpack_from(view, at)
            at += _ALIGN
            block = unpack(view[at : at + length])
            block.sequence += sequence << 16
            blocks.append(block)
            at += _with_length(length) - _ALIGN
    if len(stamps) != 1:
        raise BlocksLost(f"blocks of different versions in one batch: {sorted(stamps)}")
    complete = len(seen) == sources and all(len(seen[s]) == wanted[s] for s in seen)
    if not complete:
        got = {source: f"{len(s)}/{wanted[source]}" for source, s in sorted(seen.items())}
        raise BlocksLost(f"expected the parcels of {sources} parts, got {got}")
    return stamps.pop(), blocks
