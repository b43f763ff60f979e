"""The id table equals a dictionary from keys to the order of their first use."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from d3gnn.events import Key
from d3gnn.events.keys import IntKeys, keys_of, null_keys
from d3gnn.kernel import ids as ids_module
from d3gnn.kernel.ids import IdTable, KeyColumn
from d3gnn.kernel.mapped_state import MappedPartState
from d3gnn.kernel.part_state import PartState
from d3gnn.types import Hashes

INTS = st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3)
# Strings that a careless comparison confuses, and random ones.
STRINGS = st.sampled_from(["", "\0", "\0\0", "a", "a\0", "é", "e\u0301", "12345678", "123456789"]) | st.text()


def batches(keys: st.SearchStrategy[Key]) -> st.SearchStrategy[list[list[Key]]]:
    return st.lists(st.lists(keys, min_size=1, max_size=30), min_size=1, max_size=6)


def check_against_a_dictionary(stream: list[list[Key]], asked: list[Key]) -> None:
    table, codes = IdTable(PartState(), "id"), dict[Key, int]()
    for keys in stream:
        expected = [codes.setdefault(key, len(codes)) for key in keys]
        assert table.intern(keys_of(keys)).tolist() == expected
        assert len(table) == len(codes)
    assert table.keys.take(np.arange(len(codes))).to_list() == list(codes)
    assert table.find(keys_of(asked)).tolist() == [codes.get(key, -1) for key in asked]
    assert len(table) == len(codes), "a lookup creates no code"


@given(batches(INTS), st.lists(INTS, min_size=1))
def test_integers_equal_a_dictionary(stream: list[list[Key]], asked: list[Key]) -> None:
    check_against_a_dictionary(stream, asked)


@given(batches(STRINGS), st.lists(STRINGS, min_size=1))
def test_strings_equal_a_dictionary(stream: list[list[Key]], asked: list[Key]) -> None:
    check_against_a_dictionary(stream, asked)


@given(batches(STRINGS), st.lists(STRINGS, min_size=1))
def test_strings_with_equal_hashes(stream: list[list[Key]], asked: list[Key]) -> None:
    def worst(keys: IntKeys) -> Hashes:
        return np.full(len(keys), 5, np.uint64)

    with patch.object(ids_module, "hash_keys", worst):
        check_against_a_dictionary(stream, asked)


def test_many_integers_in_a_few_batches() -> None:
    keys = np.random.default_rng(1).permutation(np.arange(-5000, 5000, dtype=np.int64) * 2**20)
    table = IdTable(PartState(), "id")
    for some in np.array_split(keys, 7):
        table.intern(IntKeys(some))
    assert table.find(IntKeys(keys)).tolist() == list(range(10_000))
    assert table.find(IntKeys(keys + 1)).max() == -1


@pytest.mark.parametrize("ids", [[1, 2, 3, 4], ["a", "b", "", "d"]])
def test_codes_are_created_only_on_request(ids: list[Key]) -> None:
    table = IdTable(PartState(), "id")
    create = np.array([True, False, True, False])
    assert table.intern(keys_of(ids), create).tolist() == [0, -1, 1, -1]
    assert table.find(keys_of(ids)).tolist() == [0, -1, 1, -1]
    # A key that is first looked up and then created, in one batch.
    again = [ids[1], ids[1], ids[1]]
    assert table.intern(keys_of(again), np.array([False, True, False])).tolist() == [-1, 2, 2]


@pytest.mark.parametrize("ids", [[5, None, 5, None, 6], ["a", None, "a", None, ""]])
def test_nulls_have_no_code(ids: list[Key | None]) -> None:
    table = IdTable(PartState(), "id")
    assert table.intern(keys_of(ids)).tolist() == [0, -1, 0, -1, 1]
    assert len(table) == 2


def test_a_null_is_not_the_key_that_stands_in_for_it() -> None:
    for filler, null in ((0, null_keys(IntKeys, 1)), ("", keys_of(["a", None]).take(np.array([1])))):
        table = IdTable(PartState(), "id")
        table.intern(keys_of([filler]))
        assert table.find(null).tolist() == [-1]


def test_keys_of_the_other_type_are_unknown_and_change_nothing() -> None:
    table = IdTable(PartState(), "id")
    table.intern(keys_of([1]))
    assert table.intern(keys_of(["1", "a"])).tolist() == [-1, -1]
    assert len(table) == 1
    assert table.keys.type is IntKeys


@pytest.mark.parametrize("ids", [list(range(300)), [f"id {i}" for i in range(300)]])
def test_a_new_table_continues_over_the_same_files(ids: list[Key], tmp_path: Path) -> None:
    for begin in range(0, 300, 100):
        part_state = MappedPartState(tmp_path)
        table = IdTable(part_state, "id")
        assert table.intern(keys_of(ids[: begin + 100])).tolist() == list(range(begin + 100))
        assert table.keys.take(np.arange(len(table))).to_list() == ids[: begin + 100]
        part_state.close()


@given(st.lists(STRINGS, min_size=1, max_size=20))
def test_a_key_column_returns_what_was_stored(keys: list[str]) -> None:
    part_state = PartState()
    column = KeyColumn(part_state, "key")
    rows = np.random.default_rng(len(keys)).permutation(len(keys))
    half = len(keys) // 2
    stored = keys_of(keys)
    for some in (np.arange(half), np.arange(half, len(keys))):
        column.put(rows[some], stored.take(some), len(keys))
    assert column.take(rows).to_list() == keys
    assert column.take(rows[:0]).to_list() == []
