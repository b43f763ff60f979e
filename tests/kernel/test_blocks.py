"""Packing and splitting blocks is lossless."""

from __future__ import annotations

import random
from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from d3gnn.events.keys import IntKeys, Keys, StringKeys, keys_of
from d3gnn.kernel.blocks import (
    LIMIT,
    Block,
    BlockKind,
    block_keys,
    block_pairs,
    by_kind,
    joined,
    key_columns,
    pack,
    pair_columns,
    split,
    unpack,
)
from d3gnn.types import Array, Bytes

# Dtypes and widths (0: one-dimensional) of each kind's columns, as in the module's table; keys are appended.
COLUMNS: dict[BlockKind, tuple[tuple[str, int], ...]] = {
    BlockKind.VERTICES: (("i4", 0), ("i4", 0), ("u8", 0), ("i8", 0), ("i8", 0)),
    BlockKind.REPLICAS: (("i4", 0), ("i4", 0), ("i4", 0)),
    BlockKind.SOURCES: (("i4", 0), ("i4", 0), ("i4", 0)),
    BlockKind.VERTEX_DELETES: (("i4", 0), ("u1", 0), ("i8", 0), ("i8", 0)),
    BlockKind.REPLICA_DELETES: (("i4", 0), ("i8", 0), ("i8", 0)),
    BlockKind.EDGE_DELETES: (("i4", 0), ("i8", 0), ("i8", 0)),
    BlockKind.EDGE_ADDS: (("i4", 0), ("i4", 0), ("i4", 0), ("i8", 0), ("i8", 0)),
    BlockKind.VERTEX_TOMBSTONES: (("i8", 0), ("i8", 0)),
    BlockKind.EDGE_TOMBSTONES: (("i8", 0), ("i8", 0)),
    BlockKind.EDGE_VALUES: (("i4", 0), ("i8", 0), ("i8", 0), ("f4", 2)),
    BlockKind.QUERIES: (("i4", 0), ("i4", 0), ("i1", 0), ("i4", 0), ("i8", 0), ("i8", 0)),
    BlockKind.LABELS: (("i4", 0), ("u1", 0), ("i8", 0), ("i8", 0), ("f4", 2)),
    BlockKind.FEATURES: (("i4", 0), ("i4", 0), ("i8", 0), ("i8", 0), ("f4", 3)),
    BlockKind.VALUES: (("i4", 0), ("i8", 0), ("i8", 0), ("f4", 5)),
    BlockKind.ROOTS: (("i4", 0), ("i8", 0), ("i8", 0), ("f4", 1)),
    BlockKind.PARTIALS: (("i4", 0), ("i4", 0), ("i8", 0), ("i8", 0), ("f4", 4)),
    BlockKind.OUTPUT: (("u1", 0), ("i8", 0), ("i8", 0), ("f4", 2)),
    BlockKind.NAMES: (("i4", 0),),
    BlockKind.ENDS: (("i4", 0), ("i1", 0), ("i8", 0), ("i8", 0), ("f4", 2)),
    BlockKind.PAIRS: (("u1", 0), ("u1", 0), ("i8", 0), ("i8", 0), ("f4", 0)),
}
KEYED = (BlockKind.VERTICES, BlockKind.VERTEX_TOMBSTONES, BlockKind.OUTPUT, BlockKind.NAMES, BlockKind.ENDS)
TEXTS = ["", "a", "\0", "é", "a much longer id than eight bytes"]


def some_keys(rng: np.random.Generator, rows: int, ids: bool) -> Keys:
    if ids:
        return IntKeys(rng.integers(-9, 9, rows))
    return StringKeys.of([TEXTS[i] for i in rng.integers(0, len(TEXTS), rows)])


@st.composite
def blocks(draw: st.DrawFn, most: int = 40) -> Block:
    kind = draw(st.sampled_from(BlockKind))
    rows = draw(st.integers(0, most))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    columns: list[Array] = []
    for dtype, width in COLUMNS[kind]:
        noise = rng.integers(0, 256, rows * max(width, 1) * np.dtype(dtype).itemsize, np.uint8)
        column = noise.view(dtype) if dtype != "f4" else rng.standard_normal(rows * max(width, 1), np.float32)
        columns.append(column.reshape(rows, width) if width else column)
    blob: Bytes | None = None
    ids = draw(st.booleans())
    if kind in KEYED:
        last, blob = key_columns(some_keys(rng, rows, ids))
        columns.append(last)
    elif kind in (BlockKind.PAIRS, BlockKind.EDGE_TOMBSTONES):
        both, blob = pair_columns(some_keys(rng, rows, ids), some_keys(rng, rows, ids))
        columns += both
    full = kind is BlockKind.PARTIALS and draw(st.booleans())
    # Pieces of a block count on from its sequence, which must stay in 32 bits.
    numbers = [draw(st.integers(0, most)) for most in (2**31 - 1, 2**31 - 1, 2**30)]
    return Block(
        kind, numbers[0], numbers[1], tuple(columns), draw(st.integers(0, 2**40)), full, blob, numbers[2]
    )


def same(a: Block, b: Block) -> None:
    assert (a.kind, a.source, a.target, a.extent, a.full) == (b.kind, b.source, b.target, b.extent, b.full)
    assert (a.blob is None) == (b.blob is None)
    pairs = [*zip(a.columns, b.columns, strict=True)]
    if a.blob is not None and b.blob is not None:
        pairs.append((a.blob, b.blob))
    for left, right in pairs:
        assert (left.dtype, left.shape) == (right.dtype, right.shape)
        assert left.tobytes() == right.tobytes()


@given(blocks(), st.sampled_from([bytes, bytearray, memoryview]))
def test_unpacking_restores_the_block(block: Block, hold: type) -> None:
    back = unpack(hold(pack(block)))
    same(back, block)
    assert back.sequence == block.sequence
    assert len(back) == len(block)
    assert back.nbytes == block.nbytes


@given(blocks())
def test_columns_are_aligned_views(block: Block) -> None:
    packed = np.frombuffer(pack(block), np.uint8)
    start = packed.__array_interface__["data"][0]
    back = unpack(packed.data)
    for column in [*back.columns, *([] if back.blob is None else [back.blob])]:
        assert (column.__array_interface__["data"][0] - start) % 64 == 0
        assert np.shares_memory(column, packed) or not column.size


def test_columns_that_are_not_contiguous_can_be_packed() -> None:
    wide = np.arange(40, dtype=np.int32).reshape(10, 4)
    block = Block(BlockKind.REPLICAS, 0, 1, (wide[:, 1], wide[::-1, 2], wide[:, 3]))
    same(unpack(pack(block)), block)


@given(blocks(), st.sampled_from([1, 256, 4100, 4200, 5000, LIMIT]))
def test_joined_pieces_equal_the_block(block: Block, limit: int) -> None:
    pieces = list(split(block, limit))
    assert sum(map(len, pieces)) == len(block)
    assert [piece.full for piece in pieces] == [block.full] + [False] * (len(pieces) - 1)
    assert [piece.sequence for piece in pieces] == list(range(block.sequence, block.sequence + len(pieces)))
    for piece in pieces:
        assert len(pack(piece)) <= limit or len(piece) <= 1
    received = [unpack(pack(piece)) for piece in pieces]
    random.Random(1).shuffle(received)
    whole = joined(by_kind(received)[block.kind])
    assert whole is not None
    same(whole, block)


def test_a_block_is_split_no_finer_than_needed() -> None:
    column = np.zeros(100_000, np.int32)
    assert len(list(split(Block(BlockKind.EDGE_DELETES, 0, 0, (column,)), 2**20))) == 1
    assert len(list(split(Block(BlockKind.EDGE_DELETES, 0, 0, (column,)), 2**17))) == 4


def test_blocks_are_processed_by_source_and_sequence() -> None:
    empty = (np.zeros(0, np.int32),)
    shuffled = [
        Block(kind, s, 0, empty, sequence=q) for kind in BlockKind for s in range(3) for q in range(3)
    ]
    random.Random(2).shuffle(shuffled)
    found = by_kind(shuffled)
    assert [{block.kind for block in same_kind} for same_kind in found] == [{kind} for kind in BlockKind]
    for same_kind in found:
        order = [(block.source, block.sequence) for block in same_kind]
        assert order == [(s, q) for s in range(3) for q in range(3)]


def test_joining_no_blocks_returns_none() -> None:
    assert joined([]) is None


def test_a_join_has_the_largest_extent_and_is_full_if_any_is() -> None:
    a = Block(BlockKind.PARTIALS, 0, 0, (np.zeros(1, np.int32),), extent=3, full=True)
    both = joined([a, replace(a, extent=7, full=False)])
    assert both is not None
    assert (both.extent, both.full, len(both)) == (7, True, 2)


@pytest.mark.parametrize("keys", [[1, -2], ["a", ""], ["", ""]])
def test_keys_travel_as_a_column_and_a_blob(keys: list[int | str]) -> None:
    column, blob = key_columns(keys_of(keys))
    assert block_keys(Block(BlockKind.OUTPUT, 0, 0, (column,), blob=blob)).to_list() == keys


def test_a_slice_of_strings_packs_only_its_own_bytes() -> None:
    whole = StringKeys.of(["aa", "bbb", "c"])
    some = StringKeys(whole.offsets[1:3], whole.data)
    column, blob = key_columns(some)
    assert blob is not None
    assert (column.tolist(), blob.tobytes()) == ([3], b"bbb")


@pytest.mark.parametrize("junk", [b"PAR1" + bytes(60), bytes(64)])
def test_foreign_bytes_are_refused(junk: bytes) -> None:
    with pytest.raises(ValueError, match=r"not a block: the bytes begin with"):
        unpack(junk)


@pytest.mark.parametrize("ids", [True, False])
def test_pairs_of_keys_survive_splitting(ids: bool) -> None:
    rng = np.random.default_rng(1)
    src, dst = some_keys(rng, 3000, ids), some_keys(rng, 3000, ids)
    keys, blob = pair_columns(src, dst)
    block = Block(BlockKind.PAIRS, 0, 0, (np.arange(3000), *keys), blob=blob)
    pieces = [unpack(pack(piece)) for piece in split(block, 20_000)]
    assert len(pieces) > 1
    found = [block_pairs(piece) for piece in pieces]
    assert [id for keys, _ in found for id in keys.to_list()] == src.to_list()
    assert [id for _, keys in found for id in keys.to_list()] == dst.to_list()
