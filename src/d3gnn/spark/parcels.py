"""Parcels: blocks on their way through Spark. One parcel is one row, of at most 16 MB.

Every operator part sends every part of the next operator at least one parcel in every batch, so that all of
them run; each says how many there are, so that a lost one is noticed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from d3gnn.kernel.blocks import LIMIT, Block, pack, split, unpack

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


def pack_parcels(
    stamp: Stamp, source: int, targets: int, blocks: Iterable[Block]
) -> Iterator[tuple[int, bytes]]:
    """Target part and bytes of each parcel."""
    mine: list[list[Block]] = [[] for _ in range(targets)]
    for block in blocks:
        mine[block.target].append(block)
    for target in range(targets):
        loads: list[list[bytearray]] = [[]]
        room = LIMIT
        for block in mine[target]:
            for piece in split(block, LIMIT - 2 * _ALIGN):
                packed = pack(piece)
                if len(packed) > room and loads[-1]:
                    loads.append([])
                    room = LIMIT
                loads[-1].append(packed)
                room -= len(packed) + 2 * _ALIGN
        for sequence, load in enumerate(loads):
            yield target, _parcel(stamp, source, target, sequence, len(loads), load)


def _parcel(
    stamp: Stamp, source: int, target: int, sequence: int, count: int, load: list[bytearray]
) -> bytes:
    head = _HEAD.pack(_MAGIC, int(stamp.refresh), stamp.epoch, stamp.batch, source, target, sequence, count)
    parts: list[bytes | bytearray] = [head.ljust(_FIRST, b"\0")]
    for packed in load:
        parts.append(_LENGTH.pack(len(packed)).ljust(_ALIGN, b"\0"))
        parts.append(packed)
        parts.append(bytes(-len(packed) % _ALIGN))
    return b"".join(parts)


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
            at += length + (-length % _ALIGN)
    if len(stamps) != 1:
        raise BlocksLost(f"blocks of different versions in one batch: {sorted(stamps)}")
    complete = len(seen) == sources and all(len(seen[s]) == wanted[s] for s in seen)
    if not complete:
        got = {source: f"{len(s)}/{wanted[source]}" for source, s in sorted(seen.items())}
        raise BlocksLost(f"expected the parcels of {sources} parts, got {got}")
    return stamps.pop(), blocks
