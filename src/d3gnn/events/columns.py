"""Columns of events: conversion from Python lists and Arrow, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import IntEnum
from typing import Any

import numpy as np
import pyarrow as pa

from d3gnn.events.event import NO_TIME, Element, Event, Op, Time, microseconds
from d3gnn.events.keys import IntKeys, Key, Keys, StringKeys, keys_from_arrow, keys_of
from d3gnn.types import Floats, Ints, Ints32, Small

#: The code of an operation or element with an unknown name.
UNKNOWN = -1


def _codes_by_name(kinds: type[IntEnum]) -> dict[str, int]:
    return {kind.name.lower(): int(kind) for kind in kinds}


OPS, ELEMENTS = _codes_by_name(Op), _codes_by_name(Element)


def with_integer_times(rows: list[Event]) -> list[Event]:
    """The events with datetimes replaced by microseconds; all others are the same objects as before."""
    return [
        row._replace(time=_integer(row.time), arrival=_integer(row.arrival))
        if isinstance(row.time, datetime) or isinstance(row.arrival, datetime)
        else row
        for row in rows
    ]


def _integer(time: Time | None) -> int | None:
    return None if time is None else microseconds(time)


def integers(name: str, numbers: Sequence[int]) -> Ints:
    """Integers of a Python list; `name` is their column, for errors."""
    try:
        return np.array(numbers, np.int64)
    except OverflowError:
        worst = next(n for n in numbers if not -(2**63) <= n < 2**63)
        raise ValueError(
            f"{name}={worst}: out of range; it must fit into 64 bits (times are microseconds since 1970)"
        ) from None


def as_times(times: Any, n: int) -> Ints:
    """Event times of n events from integers, datetimes or datetime64 values; 0 where there are none."""
    if times is None:
        return np.zeros(n, np.int64)
    if isinstance(times, np.ndarray) and times.dtype.kind == "M":
        return times.astype("datetime64[us]").astype(np.int64)
    if isinstance(times, np.ndarray) and times.dtype.kind == "i":
        return np.asarray(times, np.int64)
    times = times.tolist() if isinstance(times, np.ndarray) else times
    return integers("time", [microseconds(time) for time in times])


def as_keys(ids: Any) -> Keys:
    """Keys from an array or a list of ids."""
    if isinstance(ids, IntKeys | StringKeys):
        return ids
    if isinstance(ids, np.ndarray) and ids.dtype == np.int64:
        return IntKeys(ids)
    if isinstance(ids, pa.Array | pa.ChunkedArray):
        return keys_from_arrow(ids)
    return keys_of(ids.tolist() if isinstance(ids, np.ndarray) else list(ids))


def optional_keys(keys: Sequence[Key | None]) -> Keys | None:
    """Keys of a Python list; None if all are null."""
    return None if all(k is None for k in keys) else keys_of(keys)


def optional_ints(name: str, column: Sequence[int | None]) -> Ints | None:
    """Integers of a Python list with `NO_TIME` for nulls; None if all are null."""
    if all(c is None for c in column):
        return None
    return integers(name, [NO_TIME if c is None else c for c in column])


def offsets_of(lengths: Any) -> Ints:
    """Where each of several runs of these lengths begins, and where the last one ends."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def encode_names(column: Sequence[str | None]) -> tuple[tuple[str, ...], Ints32 | None]:
    """The distinct names, sorted, and the index of each row's name among them (-1: null)."""
    names = tuple(sorted({c for c in column if c is not None}))
    if not names:
        return (), None
    index = {name: i for i, name in enumerate(names)}
    return names, np.array([-1 if c is None else index[c] for c in column], np.int32)


def names_of(codes: Small | Ints32, names: list[str]) -> pa.Array:
    """The name of each code as an Arrow column; negative codes are null."""
    known = codes >= 0
    return pa.DictionaryArray.from_arrays(
        pa.array(codes.astype(np.int32), mask=~known), pa.array(names, pa.string())
    ).cast(pa.string())


def named(codes: Small, names: list[str]) -> pa.Array:
    """The name of each code as an Arrow column, `unknown` for other codes: null would be the default."""
    return names_of(codes, names).fill_null("unknown")


def arrow_codes(table: pa.Table, name: str, known: Mapping[str, int], default: int) -> Small:
    """The codes of a column of names, `UNKNOWN` for others; the default for nulls and without the column."""
    if name not in table.column_names:
        return np.full(table.num_rows, default, np.int8)
    column = table[name].cast(pa.string()).combine_chunks().dictionary_encode()
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    codes = [known.get(name, UNKNOWN) for name in column.dictionary.to_pylist()]
    lookup: Small = np.array([*codes, default], np.int8)
    return lookup[np.asarray(column.indices.fill_null(len(codes)), np.int64)]


def arrow_names(table: pa.Table, name: str) -> tuple[tuple[str, ...], Ints32 | None]:
    """The distinct names of a column of a table, and the index of each row's name; see `encode_names`."""
    if name not in table.column_names or table[name].null_count == table.num_rows:
        return (), None
    return encode_names(table[name].to_pylist())


def arrow_keys(table: pa.Table, name: str) -> Keys | None:
    """Keys of a column of a table; None if it is absent or all null."""
    if name not in table.column_names or table[name].null_count == table.num_rows > 0:
        return None
    return keys_from_arrow(table[name])


def arrow_ints(table: pa.Table, name: str, default: Any) -> Any:
    """Integers or timestamps (as microseconds) of a column, with `NO_TIME` for nulls."""
    if name not in table.column_names:
        return default
    column = table[name].combine_chunks()
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False)  # nanoseconds are cut off
    return np.asarray(column.cast(pa.int64()).fill_null(NO_TIME))


def arrow_values(column: pa.ChunkedArray) -> tuple[Floats | None, Ints | None]:
    """A column of lists as flat float32 values and their offsets; None if there are no values."""
    array = column.combine_chunks()
    if array.null_count == len(array):
        return None, None
    if not hasattr(array, "value_lengths"):
        raise TypeError(f"the column 'value' holds lists of numbers, not {array.type}")
    lengths = np.asarray(array.value_lengths().fill_null(0)).astype(np.int64)
    if not lengths.any():
        return None, None
    flat = array.flatten().cast(pa.float64()).fill_null(float("nan"))
    with np.errstate(over="ignore"):  # too large for float32 becomes infinity, and a dead letter
        return np.asarray(flat).astype(np.float32), offsets_of(lengths)


def nullable_ints(times: Ints) -> pa.Array:
    """Integers as an Arrow column, in which `NO_TIME` is null."""
    return pa.array(times, pa.int64(), mask=times == NO_TIME)
