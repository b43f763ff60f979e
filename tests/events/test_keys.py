"""Columns of ids and edge keys."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from d3gnn.events import Key
from d3gnn.events.keys import IntKeys, Keys, StringKeys, concat_keys, keys_from_arrow, keys_of

INTS = st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=8)
STRINGS = st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"])), max_size=8)


@given(st.one_of(INTS, STRINGS))
def test_keys_come_back_as_they_were(keys: list[Key | None]) -> None:
    column = keys_of(keys)
    assert len(column) == len(keys)
    assert column.to_list() == keys
    assert keys_from_arrow(column.to_arrow()).to_list() == keys
    assert column.to_arrow().to_pylist() == keys


@given(st.one_of(INTS, STRINGS), st.data())
def test_take_is_that_of_a_list(keys: list[Key | None], data: st.DataObject) -> None:
    column = keys_of(keys)
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(keys), max_size=len(keys))), np.bool_)
    index = np.flatnonzero(mask)[::-1]
    assert column.take(index).to_list() == [keys[i] for i in index]
    assert column.take(mask).to_list() == [k for k, chosen in zip(keys, mask, strict=True) if chosen]


@given(st.one_of(INTS, STRINGS), st.integers(0, 8), st.integers(0, 8))
def test_slices_of_arrow_arrays(keys: list[Key | None], begin: int, length: int) -> None:
    column = keys_from_arrow(keys_of(keys).to_arrow().slice(begin, length))
    assert column.to_list() == keys[begin : begin + length]


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (pa.array([1, None], pa.int8()), [1, None]),
        (pa.array([1, 2], pa.uint32()), [1, 2]),
        (pa.array(["a", None], pa.string()), ["a", None]),
        (pa.array(["a", ""], pa.large_string()), ["a", ""]),
        (pa.array(["a", "b"], pa.string_view()), ["a", "b"]),
        (pa.array(["a", None, "a"]).dictionary_encode(), ["a", None, "a"]),
        (pa.chunked_array([["a"], ["b", None]]), ["a", "b", None]),
        (pa.chunked_array([], pa.int64()), []),
        (pa.nulls(2), [None, None]),
    ],
    ids=lambda value: str(value.type) if hasattr(value, "type") else "",
)
def test_arrow_types(array: pa.Array, expected: list[Key | None]) -> None:
    assert keys_from_arrow(array).to_list() == expected


def test_other_arrow_types_are_refused() -> None:
    with pytest.raises(TypeError, match="integers or strings, not double"):
        keys_from_arrow(pa.array([1.0]))


@pytest.mark.parametrize("keys", [[1, "2"], ["1", 2], [None, 1, "2"], [1.5], [1, 2.0]])
def test_lists_of_other_or_mixed_types_are_refused(keys: list[Any]) -> None:
    with pytest.raises(TypeError, match="all integers or all strings"):
        keys_of(keys)


@pytest.mark.parametrize(
    "column",
    [keys_of([2**63 - 1, 2**63]), keys_from_arrow(pa.array([2**63 - 1, 2**64 - 1], pa.uint64()))],
    ids=["list", "arrow"],
)
def test_integers_beyond_64_bits_count_as_null(column: Keys) -> None:
    assert column.to_list() == [2**63 - 1, None]


def test_numpy_integers_are_integers() -> None:
    assert keys_of([np.int32(1), 2]).to_list() == [1, 2]  # type: ignore[list-item]


def test_nulls_alone_are_integers() -> None:
    assert isinstance(keys_of([None]), IntKeys)
    assert isinstance(keys_of([None, "a"]), StringKeys)


def test_concat() -> None:
    assert concat_keys([keys_of([1]), keys_of([None, 2])]).to_list() == [1, None, 2]
    assert concat_keys([keys_of(["a"]), keys_of([]), keys_of(["b"])][::2]).to_list() == ["a", "b"]
    one = keys_of(["a"])
    assert concat_keys([one]) is one
