"""Columns of vertex ids and edge keys: integers or strings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from d3gnn.types import Bools, Bytes, Ints

Key = int | str

_LEAST, _GREATEST = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True)
class IntKeys:
    """Integer keys; `valid` is None if no key is null.

    >>> IntKeys.of([7, None, 9]).to_list()
    [7, None, 9]
    """

    values: Ints
    valid: Bools | None = None

    @staticmethod
    def of(keys: Sequence[int | None]) -> IntKeys:
        """Keys of a Python list; values beyond 64 bits are null."""
        for key in keys:
            if not isinstance(key, int | np.integer | None):
                raise TypeError(f"keys must be all integers or all strings; {key!r} is among integers")
        valid = np.array([k is not None and _LEAST <= k <= _GREATEST for k in keys], np.bool_)
        if valid.all():
            return IntKeys(np.array(keys, np.int64))
        fitting = [k if ok else 0 for k, ok in zip(keys, valid.tolist(), strict=True)]
        return IntKeys(np.array(fitting, np.int64), valid)

    def __len__(self) -> int:
        return len(self.values)

    def take(self, index: Any) -> IntKeys:
        return IntKeys(self.values[index], None if self.valid is None else self.valid[index])

    def to_list(self) -> list[int | None]:
        keys: list[int | None] = self.values.tolist()
        if self.valid is None:
            return keys
        return [k if ok else None for k, ok in zip(keys, self.valid.tolist(), strict=True)]

    def to_arrow(self) -> pa.Array:
        mask = None if self.valid is None else ~self.valid
        return pa.array(self.values, pa.int64(), mask=mask)


@dataclass(frozen=True, slots=True)
class StringKeys:
    """String keys in Arrow's layout: key i is `data[offsets[i]:offsets[i + 1]]`, UTF-8.

    >>> StringKeys.of(["ann", None]).to_list()
    ['ann', None]
    """

    offsets: Ints
    data: Bytes
    valid: Bools | None = None

    @staticmethod
    def of(keys: Sequence[str | None]) -> StringKeys:
        for key in keys:
            if not isinstance(key, str | None):
                raise TypeError(f"keys must be all integers or all strings; {key!r} is among strings")
        return StringKeys.from_arrow(pa.array(keys, pa.large_string()))

    @staticmethod
    def from_arrow(array: pa.Array) -> StringKeys:
        array = array.cast(pa.large_string())
        if array.offset:
            array = pa.concat_arrays([array])  # copies, so that the buffers start at the first key
        if array.offset or len(array) == 0:
            return StringKeys._from_list(array.to_pylist())
        _, offsets, data = array.buffers()
        return StringKeys(
            np.frombuffer(offsets, np.int64, len(array) + 1),
            np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8),
            np.asarray(array.is_valid(), np.bool_) if array.null_count else None,
        )

    @staticmethod
    def _from_list(keys: Sequence[str | None]) -> StringKeys:
        encoded = [(k or "").encode() for k in keys]
        offsets = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(k) for k in encoded], out=offsets[1:])
        valid = np.array([k is not None for k in keys], np.bool_)
        return StringKeys(offsets, np.frombuffer(b"".join(encoded), np.uint8), None if valid.all() else valid)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def take(self, index: Any) -> StringKeys:
        return StringKeys.from_arrow(self.to_arrow().take(pa.array(np.arange(len(self))[index])))

    def to_list(self) -> list[str | None]:
        keys: list[str | None] = self.to_arrow().to_pylist()
        return keys

    def to_arrow(self) -> pa.Array:
        mask = None
        if self.valid is not None:
            mask = pa.array(self.valid).buffers()[1]
        buffers = [mask, pa.py_buffer(self.offsets), pa.py_buffer(self.data)]
        return pa.Array.from_buffers(pa.large_string(), len(self), buffers)


Keys = IntKeys | StringKeys


_STRING_TYPES = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)


def keys_of(keys: Sequence[Key | None]) -> Keys:
    """Keys of a Python list, all integers or all strings; only nulls are integers.

    >>> keys_of([1, 2]), keys_of(["a"]).to_list()
    (IntKeys(values=array([1, 2]), valid=None), ['a'])
    """
    for key in keys:
        if isinstance(key, str):
            return StringKeys.of(keys)  # type: ignore[arg-type]  # refuses an integer among them
        if key is not None:
            return IntKeys.of(keys)  # type: ignore[arg-type]
    return IntKeys.of([None] * len(keys))


def keys_from_arrow(array: pa.Array | pa.ChunkedArray) -> Keys:
    """Keys of an Arrow column of integers or strings; values beyond 64 bits are null."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_uint64(array.type):
        array = pc.if_else(pc.less_equal(array, pa.scalar(_GREATEST, pa.uint64())), array, None)
    if pa.types.is_integer(array.type):
        if array.null_count:
            return IntKeys(
                np.asarray(array.fill_null(0)).astype(np.int64), np.asarray(array.is_valid(), np.bool_)
            )
        return IntKeys(np.asarray(array).astype(np.int64, copy=False))
    if pa.types.is_null(array.type):
        return IntKeys.of([None] * len(array))
    if any(is_type(array.type) for is_type in _STRING_TYPES):
        return StringKeys.from_arrow(array)
    raise TypeError(f"ids and edge keys must be integers or strings, not {array.type}")


def null_keys(kind: type[IntKeys] | type[StringKeys], n: int) -> Keys:
    """n null keys."""
    if kind is IntKeys:
        return IntKeys(np.zeros(n, np.int64), np.zeros(n, np.bool_))
    return kind.of([None] * n)


def concat_keys(parts: Sequence[Keys]) -> Keys:
    """One column from several of the same type; a column of only nulls fits both types."""
    if len(parts) == 1:
        return parts[0]
    ints = [p for p in parts if isinstance(p, IntKeys)]
    if len(ints) == len(parts):
        values = np.concatenate([p.values for p in ints])
        if all(p.valid is None for p in ints):
            return IntKeys(values)
        masks = [np.ones(len(p.values), np.bool_) if p.valid is None else p.valid for p in ints]
        return IntKeys(values, np.concatenate(masks))
    kind = next((type(p) for p in parts if len(p) and (p.valid is None or p.valid.any())), IntKeys)
    parts = [p if len(p) and (p.valid is None or p.valid.any()) else null_keys(kind, len(p)) for p in parts]
    if all(isinstance(p, IntKeys) for p in parts):
        return concat_keys(parts)
    valid = None
    if any(p.valid is not None for p in parts):
        valid = np.concatenate([np.ones(len(p), np.bool_) if p.valid is None else p.valid for p in parts])
    strings = [p for p in parts if isinstance(p, StringKeys)]
    if len(strings) < len(parts):
        raise TypeError("integer keys and string keys cannot be in one column")
    lengths = np.concatenate([np.diff(p.offsets) for p in strings])
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    data = np.concatenate([p.data[int(p.offsets[0]) : int(p.offsets[-1])] for p in strings])
    return StringKeys(offsets, data, valid)
