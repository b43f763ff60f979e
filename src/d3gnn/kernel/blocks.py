"""Blocks: the columnar tables that operators send, packed to bytes where they leave the process.

Each kind has its own columns. `time` is event time, `arrival` is processing time:

| kind              | sender, receiver      | columns                                              |
|-------------------|-----------------------|------------------------------------------------------|
| VERTICES          | Partition, all        | row, slot, seed, time, arrival, key (integers, or    |
|                   |                       | lengths and blob)                                    |
| REPLICAS          | Partition, all        | slot, master part, master row                        |
| SOURCES           | Partition, all        | row, part, slot: a replica is now the source of an   |
|                   |                       | edge                                                 |
| VERTEX_DELETES    | Partition, all        | row, tombstone, time, arrival                        |
| REPLICA_DELETES   | Partition, all        | slot, time, arrival                                  |
| EDGE_DELETES      | Partition, all        | edge slot, time, arrival                             |
| EDGE_ADDS         | Partition, all        | edge slot, source slot, destination slot, time, arrival |
| VERTEX_TOMBSTONES | Partition, all        | time, arrival, key: a vertex deleted in the batch of  |
|                   |                       | a rebuild                                            |
| EDGE_TOMBSTONES   | Partition, all        | time, arrival, keys: an edge deleted in the batch of |
|                   |                       | a rebuild                                            |
| EDGE_VALUES       | Partition, all        | edge slot, time, arrival, features; NaN where absent |
| QUERIES           | Partition, Vertex L   | row, number, is second end, answering part, time,    |
|                   |                       | arrival                                              |
| LABELS            | Partition, all        | row of the master, deleted, time, arrival, values    |
|                   |                       | (NaN where deleted)                                  |
| FEATURES          | Partition, Vertex 0   | row, feature (or -1 - feature to delete it), time,   |
|                   |                       | arrival, values                                      |
| VALUES            | Vertex l-1, Edge l    | slot, time, arrival, message                         |
| ROOTS             | Vertex l-1, Edge l, l | row, time, arrival, root                             |
| PARTIALS          | Edge l, Vertex l      | row, count, time, arrival, state                     |
| OUTPUT            | Vertex L, output      | deleted, time, arrival, embedding, [prediction and   |
|                   |                       | score], [whether an alert], key                      |
| NAMES             | Vertex L, Edge L+1    | slot, key: of a replica in another part              |
| ENDS              | Vertex L, Edge L+1    | number, is second end, time, arrival, embedding, key |
| PAIRS             | Edge L+1, output      | is_query, deleted, time, arrival, score, [whether an |
|                   |                       | alert], keys (or lengths and blob)                   |
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from operator import attrgetter
from typing import Any

import numpy as np

from d3gnn.events.keys import IntKeys, Keys, StringKeys, concat_keys
from d3gnn.types import Array, Bytes, Ints

#: Largest size of a packed block; only a single row may exceed it.
LIMIT = 16 * 2**20
#: Up to this many parts, looking at each one is faster than finding those that have rows.
FEW_PARTS = 32
_ALIGN = 64
_HEAD = struct.Struct("<4sBBxxiiiqqq")
_COLUMN = struct.Struct("<BxxxI")
_MAGIC = b"d3b2"
_DTYPES = [np.dtype(t) for t in ("i1", "i4", "i8", "u1", "u8", "f4", "f8")]
_CODES = {dtype: code for code, dtype in enumerate(_DTYPES)}


class BlockKind(IntEnum):
    """What a block holds."""

    VERTICES = 0
    REPLICAS = 1
    SOURCES = 2
    VERTEX_DELETES = 3
    REPLICA_DELETES = 4
    EDGE_DELETES = 5
    EDGE_ADDS = 6
    VERTEX_TOMBSTONES = 7
    EDGE_TOMBSTONES = 8
    EDGE_VALUES = 9
    QUERIES = 10
    LABELS = 11
    FEATURES = 12
    VALUES = 13
    ROOTS = 14
    PARTIALS = 15
    OUTPUT = 16
    NAMES = 17
    ENDS = 18
    PAIRS = 19


# Module-level names: looking up a member of an enum is slow compared with the work on a small block.
(
    VERTICES, REPLICAS, SOURCES, VERTEX_DELETES, REPLICA_DELETES, EDGE_DELETES, EDGE_ADDS, VERTEX_TOMBSTONES,
    EDGE_TOMBSTONES, EDGE_VALUES, QUERIES, LABELS,
    FEATURES, VALUES, ROOTS, PARTIALS, OUTPUT, NAMES, ENDS, PAIRS,
) = BlockKind  # fmt: skip

#: Values of `tombstone` in VERTEX_DELETES: none, since the vertex was created again in the same batch; one,
#: if readers know the vertex; one in any case, since they may know a vertex of this id that had none.
NO_TOMBSTONE, TOMBSTONE, SURE_TOMBSTONE = range(3)

#: Kinds up to this one (topology, queries and labels) travel unchanged from Partition to the last operator.
LAST_TOPOLOGY = BlockKind.LABELS


@dataclass(slots=True)
class Block:
    """One table that an operator part sends to another.

    extent:
        Rows that the receiver's array must have: 1 more than the largest index in the first column.
    full:
        On partials: the receiver drops all partials that this sender sent before.
    blob:
        The bytes of string keys, concatenated. The last column holds their lengths.
    """

    kind: BlockKind
    source: int
    target: int
    columns: tuple[Array, ...]
    extent: int = 0
    full: bool = False
    blob: Bytes | None = None
    sequence: int = 0

    def __len__(self) -> int:
        return len(self.columns[0])

    @property
    def nbytes(self) -> int:
        total = 0 if self.blob is None else self.blob.nbytes
        for column in self.columns:
            total += column.nbytes
        return total


def key_columns(keys: Keys) -> tuple[Array, Bytes | None]:
    """The last column and the blob that encode keys."""
    if isinstance(keys, IntKeys):
        return keys.values, None
    begin, end = int(keys.offsets[0]), int(keys.offsets[-1])
    return np.diff(keys.offsets), keys.data[begin:end]


def block_keys(block: Block) -> Keys:
    """The keys of a block: the inverse of `key_columns`."""
    if block.blob is None:
        return IntKeys(block.columns[-1])
    offsets = np.zeros(len(block) + 1, np.int64)
    np.cumsum(block.columns[-1], out=offsets[1:])
    return StringKeys(offsets, block.blob)


def pair_columns(src: Keys, dst: Keys) -> tuple[tuple[Array, Array], Bytes | None]:
    """The last two columns and the blob that encode two keys per row.

    The columns are the keys if both are integers. Otherwise they hold the length of the first key and the
    length of both keys together.
    """
    if isinstance(src, IntKeys) and isinstance(dst, IntKeys):
        return (src.values, dst.values), None
    n, first, second = len(src), key_columns(src)[0], key_columns(dst)[0]
    interleaved = concat_keys([src, dst]).take(np.arange(2 * n).reshape(2, n).T.reshape(-1))
    return (first, first + second), key_columns(interleaved)[1] if n else np.zeros(0, np.uint8)


def block_pairs(block: Block) -> tuple[Keys, Keys]:
    """The two keys of each row: the inverse of `pair_columns`."""
    first, last = block.columns[-2:]
    if block.blob is None:
        return IntKeys(first), IntKeys(last)
    offsets = np.zeros(2 * len(block) + 1, np.int64)
    np.cumsum(np.stack([first, last - first], 1).reshape(-1), out=offsets[1:])
    both = StringKeys(offsets, block.blob)
    return both.take(np.arange(0, 2 * len(block), 2)), both.take(np.arange(1, 2 * len(block), 2))


def by_kind(blocks: Iterable[Block]) -> list[list[Block]]:
    """Blocks by kind, each sorted by (source part, sequence), the order of processing."""
    found = _NONE.copy()
    several = []
    for block in blocks:
        same = found[block.kind]
        if same:
            if len(same) == 1:
                several.append(same)
            same.append(block)
        else:
            found[block.kind] = [block]
    for same in several:
        same.sort(key=_PLACE)
    return found


_NONE: list[list[Block]] = [[]] * len(BlockKind)
_PLACE = attrgetter("source", "sequence")


def joined(blocks: Sequence[Block]) -> Block | None:
    """Several blocks of one kind as one, in order; None for an empty list."""
    if not blocks:
        return None
    first = blocks[0]
    if len(blocks) == 1:
        return first
    columns = tuple(np.concatenate(same) for same in zip(*(b.columns for b in blocks), strict=True))
    blobs = [b.blob for b in blocks if b.blob is not None]
    return replace(
        first,
        columns=columns,
        extent=max(b.extent for b in blocks),
        full=any(b.full for b in blocks),
        blob=np.concatenate(blobs) if blobs else None,
    )


def split(block: Block, limit: int = LIMIT) -> Iterator[Block]:
    """Split a block into blocks of at most `limit` bytes, numbered by `sequence`."""
    rows = len(block)
    pieces = min(max(1, -(-block.nbytes // max(1, limit - 4096))), max(rows, 1))
    if pieces == 1:
        yield block
        return
    per_row = np.full(rows, sum(c.nbytes for c in block.columns) // rows, np.int64)
    if block.blob is not None:
        per_row += block.columns[-1]
    ends = np.cumsum(per_row)
    text = None if block.blob is None else np.concatenate([[0], np.cumsum(block.columns[-1])])
    begin = 0
    sequence = block.sequence
    while begin < rows:
        before = int(ends[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, before + limit - 4096, side="right")))
        blob = None
        if block.blob is not None and text is not None:
            blob = block.blob[text[begin] : text[end]]
        yield replace(
            block,
            columns=tuple(c[begin:end] for c in block.columns),
            blob=blob,
            # Only the first piece clears earlier partials: the others add to them.
            full=block.full and begin == 0,
            sequence=sequence,
        )
        begin, sequence = end, sequence + 1


def pack(block: Block) -> bytearray:
    """The block as bytes: header, column headers, columns and blob, each aligned for zero-copy reads."""
    packed = bytearray(packed_size(block))
    pack_into(block, memoryview(packed))
    return packed


def packed_size(block: Block) -> int:
    """Size of the packed block in bytes."""
    return _places(_packed_columns(block))[-1]


def pack_into(block: Block, packed: memoryview) -> None:
    """Pack a block into an existing buffer. Padding between columns is not written."""
    columns = _packed_columns(block)
    flags = int(block.full) | int(block.blob is not None) << 1
    _HEAD.pack_into(
        packed, 0, _MAGIC, block.kind, flags, block.source, block.target, block.sequence,
        block.extent, len(block), len(columns),
    )  # fmt: skip
    for i, (column, place) in enumerate(zip(columns, _places(columns), strict=False)):
        width = column.shape[1] if column.ndim == 2 else 0
        if i == len(block.columns):
            width = column.nbytes
        _COLUMN.pack_into(packed, _HEAD.size + i * _COLUMN.size, _CODES[column.dtype], width)
        flat = np.ascontiguousarray(column).reshape(-1)
        packed[place : place + column.nbytes] = flat.view(np.uint8).data


def _packed_columns(block: Block) -> tuple[Array, ...]:
    return block.columns if block.blob is None else (*block.columns, block.blob)


def _places(columns: Sequence[Array]) -> list[int]:
    """Offset of each column, and the end of the last one."""
    end = _HEAD.size + _COLUMN.size * len(columns)
    places = []
    for column in columns:
        place = -(-end // _ALIGN) * _ALIGN
        places.append(place)
        end = place + column.nbytes
    return [*places, end]


def unpack(packed: Any) -> Block:
    """The inverse of `pack`; columns are views of the bytes.

    >>> block = Block(BlockKind.EDGE_DELETES, 0, 1, (np.arange(3, dtype=np.int32),), extent=3)
    >>> unpack(pack(block)).columns[0].tolist()
    [0, 1, 2]
    """
    magic, kind, flags, source, target, sequence, extent, rows, count = _HEAD.unpack_from(packed, 0)
    if magic != _MAGIC:
        raise ValueError(f"not a block: the bytes begin with {bytes(magic)!r}, expected {_MAGIC!r}")
    columns: list[Array] = []
    at = _HEAD.size + _COLUMN.size * count
    for i in range(count):
        code, width = _COLUMN.unpack_from(packed, _HEAD.size + i * _COLUMN.size)
        at = -(-at // _ALIGN) * _ALIGN
        is_blob = bool(flags & 2) and i == count - 1
        size = width if is_blob else rows * max(width, 1)
        column = np.frombuffer(packed, _DTYPES[code], size, at)
        columns.append(column.reshape(rows, width) if width and not is_blob else column)
        at += column.nbytes
    blob = columns.pop() if flags & 2 else None
    return Block(BlockKind(kind), source, target, tuple(columns), extent, bool(flags & 1), blob, sequence)


def spans(ends: Ints, empty: bool = False) -> Iterable[tuple[int, int, int]]:
    """(part, begin, end) of the rows of each part, given where they end; parts without rows only if `empty`.

    >>> list(spans(np.array([2, 2, 5])))
    [(0, 0, 2), (2, 2, 5)]
    """
    if len(ends) > FEW_PARTS and not empty:
        filled = np.flatnonzero(np.diff(ends, prepend=0))
        last = ends[filled].tolist()
        return zip(filled.tolist(), [0, *last], last, strict=False)
    begin, found = 0, []
    for part, end in enumerate(ends.tolist()):
        if end > begin or empty:
            found.append((part, begin, end))
        begin = end
    return found
