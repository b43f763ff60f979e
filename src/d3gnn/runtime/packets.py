"""Packets: the rows that carry blocks from an operator part to the parts of the next operator.

Every operator part sends every part of the next operator at least one packet in every batch, so that all of
them run. Each packet holds the number of packets between the two parts, so that a lost one is noticed. A
packet carries its blocks, at most 1 MB of them; or they are in a file of the host, and it carries the place.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from d3gnn.kernel.blocks import Block, pack_into, packed_size, split, unpack
from d3gnn.runtime.version import BatchVersion

Bytes = bytes | bytearray | memoryview

#: Largest packet with blocks. Rows of this size, about two in an Arrow batch, reach Python in half the time
#: that large ones take.
MAX_BYTES = 2**20
_HEAD = struct.Struct("<4sBBBxqqqiiiii")
_MAGIC = b"d3p5"
_LENGTH = struct.Struct("<Q")
#: Begin and end in the file, and the random id of the folder of arrays on the host that has the file.
_PLACE = struct.Struct("<QQ16s")
_ALIGN = 64
_FIRST = -(-_HEAD.size // _ALIGN) * _ALIGN


class BlocksLost(RuntimeError):
    """Packets of a batch are missing."""


class PacketHeader(NamedTuple):
    """The first bytes of every packet."""

    version: BatchVersion
    source: int
    target: int
    sequence: int  # among the packets from this source to this target
    total: int  # number of packets from this source to this target
    in_file: bool = False  # the packet holds the place of its blocks in a file

    def write(self, packet: bytearray | memoryview) -> None:
        """Put the header in front of a packet."""
        epoch, batch, refresh, clock, drain, model = self.version
        _HEAD.pack_into(
            packet, 0, _MAGIC, int(refresh), int(self.in_file), int(drain), epoch, batch, clock, model,
            self.source, self.target, self.sequence, self.total,
        )  # fmt: skip

    @staticmethod
    def of(packet: Bytes) -> PacketHeader:
        """The header of a packet; raises ValueError for other bytes."""
        magic, refresh, in_file, drain, epoch, batch, clock, model, source, target, sequence, total = (
            _HEAD.unpack_from(packet, 0)
        )
        if magic != _MAGIC:
            raise ValueError(
                "a row between two operators is not a packet: the DataFrame between them was changed"
            )
        version = BatchVersion(epoch, batch, bool(refresh), clock, bool(drain), model)
        return PacketHeader(version, source, target, sequence, total, bool(in_file))


@dataclass(slots=True)
class Packets:
    """All packets of an operator part in a batch, end to end, as files and Arrow arrays hold them."""

    targets: list[int]
    ends: list[int]
    data: Bytes
    #: The file that holds the packets, if any, and the id of the folder of arrays on its host.
    file: str | None = None
    folder: bytes = bytes(16)
    #: The targets that read the file; None for all. Packets for others travel as they are.
    near: frozenset[int] | None = None

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

    def for_rows(self) -> Packets:
        """The packets that Spark carries: these, or for near targets the places of these in their file."""
        if self.file is None:
            return self
        path, begin, rows = self.file.encode(), 0, bytearray()
        ends = []
        for (target, packet), end in zip(self, self.ends, strict=True):
            if self.near is None or target in self.near:
                row = bytearray(_FIRST + _PLACE.size)
                PacketHeader.of(packet)._replace(in_file=True).write(row)
                _PLACE.pack_into(row, _FIRST, begin, end, self.folder)
                rows += row + path
            else:
                rows += packet
            ends.append(len(rows))
            begin = end
        return Packets(self.targets, ends, rows)


def make_packets(
    version: BatchVersion,
    source: int,
    targets: int,
    blocks: Iterable[Block],
    limit: int | None = MAX_BYTES,
    room: Callable[[list[int], list[int]], Packets] | None = None,
) -> Packets:
    """The blocks of one operator part, for each part of the next operator.

    No packet is larger than `limit`, unless a single row of a block is; without a limit, there is one packet
    for each target. `room` allocates them, given the target and the end of each.
    """
    by_target: list[list[Block]] = [[] for _ in range(targets)]
    for block in blocks:
        by_target[block.target].append(block)
    plan = [(target, load) for target in range(targets) for load in _loads(by_target[target], limit)]
    ends = list(accumulate(_FIRST + sum(_with_length(size) for _, size in load) for _, load in plan))
    packed = (room or _in_memory)([target for target, _ in plan], ends)
    counts = Counter(packed.targets)
    sequences = [count for target in range(targets) for count in range(counts[target])]
    for (target, load), sequence, (_, packet) in zip(plan, sequences, packed, strict=True):
        PacketHeader(version, source, target, sequence, counts[target]).write(packet)
        at = _FIRST
        for block, size in load:
            _LENGTH.pack_into(packet, at, size)
            pack_into(block, packet[at + _ALIGN : at + _ALIGN + size])
            at += _with_length(size)
    return packed


def _in_memory(targets: list[int], ends: list[int]) -> Packets:
    return Packets(targets, ends, bytearray(ends[-1]))


def _loads(blocks: Iterable[Block], limit: int | None) -> list[list[tuple[Block, int]]]:
    """The blocks of each packet for one target, with their packed sizes; at least one packet."""
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
class Inbox:
    """All packets of a batch for one part: of one version, and none missing."""

    version: BatchVersion
    packets: list[tuple[PacketHeader, Bytes]]

    @staticmethod
    def of(packets: Iterable[Bytes], sources: int) -> Inbox:
        """Check the packets of this many parts; reads their headers only."""
        by_number: dict[tuple[int, int], tuple[PacketHeader, Bytes]] = {}
        for packet in packets:
            head = PacketHeader.of(packet)
            by_number.setdefault((head.source, head.sequence), (head, packet))  # a row may arrive twice
        versions = {head.version for head, _ in by_number.values()}
        if len(versions) > 1:
            raise BlocksLost(f"packets of different versions in one batch: {sorted(versions)}")
        counts = Counter(source for source, _ in by_number)
        expected = {head.source: head.total for head, _ in by_number.values()}
        if len(counts) != sources or counts != Counter(expected):
            arrived = {source: f"{count}/{expected[source]}" for source, count in sorted(counts.items())}
            raise BlocksLost(f"expected the packets of {sources} parts, got {arrived}")
        return Inbox(versions.pop(), list(by_number.values()))

    def folders(self) -> set[bytes]:
        """The ids of the folders of arrays with the files that these packets name."""
        return {_PLACE.unpack_from(packet, _FIRST)[2] for head, packet in self.packets if head.in_file}

    def blocks(self, read: Callable[[str, BatchVersion], memoryview]) -> list[Block]:
        """All blocks, as views of their bytes; `read` maps the file of an outbox for a version."""
        blocks: list[Block] = []
        for head, packet in self.packets:
            view = memoryview(packet)
            if head.in_file:
                begin, end, _ = _PLACE.unpack_from(view, _FIRST)
                path = bytes(view[_FIRST + _PLACE.size :]).decode()
                view = read(path, self.version)[begin:end]
            at = _FIRST
            while at < len(view):
                (length,) = _LENGTH.unpack_from(view, at)
                at += _ALIGN
                block = unpack(view[at : at + length])
                block.sequence += head.sequence << 16
                blocks.append(block)
                at += _with_length(length) - _ALIGN
        return blocks
