"""Events as they travel: one row each for people, columns for the kernel."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from d3gnn.events.keys import IntKeys, Key, Keys, concat_keys, keys_from_arrow, keys_of, null_keys
from d3gnn.types import Array, Floats, Ints, Ints32, Small

#: Stands for "no time given" in time columns.
NO_TIME = int(np.iinfo(np.int64).min)
DEFAULT_FEATURE = "x"


class Op(IntEnum):
    """What happens to the element."""

    CREATE = 0
    UPDATE = 1
    DELETE = 2


class Element(IntEnum):
    """What it happens to."""

    VERTEX = 0
    EDGE = 1
    FEATURE = 2
    EDGE_FEATURE = 3
    LABEL = 4
    #: Changes nothing: asks for the score of a pair of vertices.
    QUERY = 5


UNKNOWN = -1
_OPS = {op.name.lower(): int(op) for op in Op}
_COLUMNS = ["element", "src", "time", "dst", "key", "feature", "arrival", "partition", "offset", "origin"]
_ELEMENTS = {element.name.lower(): int(element) for element in Element}


class Event(NamedTuple):
    """One change of the graph. Times are microseconds since 1970, or any integers that order the events.

    A vertex, its features and its label are named by `src`; an edge and its features by `src`, `dst` and,
    in a keyed multigraph, `key`. A query asks for the score of `src` and `dst`.

    >>> Event("create", "edge", "ann", "bob", time=1)
    create edge ann -> bob at 1
    """

    op: str
    element: str
    src: Key | None
    dst: Key | None = None
    key: Key | None = None
    feature: str | None = None
    value: Sequence[float] | None = None
    time: int | None = 0
    arrival: int | None = None
    partition: int | None = None
    offset: int | None = None

    def __repr__(self) -> str:
        text = f"{self.op} {self.element} {self.src}"
        text += f" -> {self.dst}" if self.dst is not None else ""
        text += f" #{self.key}" if self.key is not None else ""
        if self.value is not None:
            text += f" {self.feature or DEFAULT_FEATURE}={list(self.value)}"
        return f"{text} at {self.time}"


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Events as columns, in any order; `None` stands for a column of nulls.

    >>> batch = EventBatch.edges([1, 2], [3, 3], time=[10, 20])
    >>> len(batch), batch.row(1)
    (2, create edge 2 -> 3 at 20)
    """

    op: Small
    element: Small
    src: Keys
    time: Ints
    dst: Keys | None = None
    key: Keys | None = None
    #: Feature of each event as an index into `names`; -1 is the default feature.
    feature: Ints32 | None = None
    names: tuple[str, ...] = ()
    #: Values end to end; those of event i are `values[value_offsets[i]:value_offsets[i + 1]]`.
    values: Floats | None = None
    value_offsets: Ints | None = None
    arrival: Ints | None = None
    partition: Ints | None = None
    offset: Ints | None = None
    #: The rows as they came in, for dead letters.
    origin: pa.Table | Sequence[Event] | None = None

    def __post_init__(self) -> None:
        for name in _COLUMNS:
            column = getattr(self, name)
            if column is not None and len(column) != len(self.op):
                raise ValueError(f"{len(self.op)} events, but {len(column)} in the column {name!r}")
        if self.value_offsets is not None and len(self.value_offsets) != len(self.op) + 1:
            raise ValueError(f"{len(self.op)} events need {len(self.op) + 1} value_offsets")

    def __len__(self) -> int:
        return len(self.op)

    @staticmethod
    def edges(src: Any, dst: Any, *, time: Any = None, op: Op = Op.CREATE, arrival: Any = None) -> EventBatch:
        """Events of edges alone, from arrays or lists of ids."""
        src, dst = (
            IntKeys(ids) if isinstance(ids, np.ndarray) and ids.dtype == np.int64 else _keys(ids)
            for ids in (src, dst)
        )
        n = len(src)
        return EventBatch(
            op=np.full(n, op, np.int8),
            element=np.full(n, Element.EDGE, np.int8),
            src=src,
            dst=dst,
            time=np.zeros(n, np.int64) if time is None else np.asarray(time, np.int64),
            arrival=None if arrival is None else np.asarray(arrival, np.int64),
        )

    @staticmethod
    def of(events: EventBatch | pa.Table | Iterable[Event]) -> EventBatch:
        """A batch from whatever holds events."""
        if isinstance(events, EventBatch):
            return events
        if isinstance(events, pa.Table | pa.RecordBatch):
            return EventBatch.from_arrow(events)
        return EventBatch._from_rows(list(events))

    @staticmethod
    def _from_rows(rows: list[Event]) -> EventBatch:
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(Event._fields)
        op, element, src, dst, key, feature, value, time, arrival, partition, offset = columns
        names, codes = _encode_names(feature)
        lengths = [0 if v is None else len(v) for v in value]
        flat = [x for v in value if v is not None for x in v]
        with np.errstate(over="ignore"):  # too large for float32 becomes infinity, and a dead letter
            values = np.array(flat, np.float64).astype(np.float32)
        return EventBatch(
            op=np.array([_OPS.get(o, UNKNOWN) for o in op], np.int8),
            element=np.array([_ELEMENTS.get(e, UNKNOWN) for e in element], np.int8),
            src=keys_of(src),
            dst=_optional_keys(dst),
            key=_optional_keys(key),
            feature=codes,
            names=names,
            values=values if flat else None,
            value_offsets=_offsets(lengths) if flat else None,
            time=np.array([NO_TIME if t is None else t for t in time], np.int64),
            arrival=_optional_ints(arrival),
            partition=_optional_ints(partition),
            offset=_optional_ints(offset),
            origin=rows,
        )

    @staticmethod
    def from_arrow(table: pa.Table | pa.RecordBatch) -> EventBatch:
        """A batch from an Arrow table with the columns of `Event`; all but `src` may be absent.

        Without `op` every row is a create; without `element` all are edges if there is a column `dst`, else
        vertices.
        """
        if isinstance(table, pa.RecordBatch):
            table = pa.Table.from_batches([table])
        n, has = table.num_rows, set(table.column_names)
        if "src" not in has:
            raise ValueError(f"events need a column 'src'; these have {', '.join(table.column_names)}")
        dst = _arrow_keys(table, "dst")
        names, feature = _encode_names(table["feature"].to_pylist()) if "feature" in has else ((), None)
        values, offsets = _arrow_values(table["value"]) if "value" in has else (None, None)
        default = Element.EDGE if "dst" in has else Element.VERTEX
        return EventBatch(
            op=_codes(table["op"], _OPS) if "op" in has else np.full(n, Op.CREATE, np.int8),
            element=_codes(table["element"], _ELEMENTS) if "element" in has else np.full(n, default, np.int8),
            src=keys_from_arrow(table["src"]),
            dst=dst,
            key=_arrow_keys(table, "key"),
            feature=feature,
            names=names,
            values=values,
            value_offsets=offsets,
            time=_arrow_ints(table, "time", np.zeros(n, np.int64)),
            arrival=_arrow_ints(table, "arrival", None),
            partition=_arrow_ints(table, "partition", None),
            offset=_arrow_ints(table, "offset", None),
            origin=table,
        )

    def to_arrow(self) -> pa.Table:
        """The batch as an Arrow table in the event format."""
        n = len(self)
        ops = [op.name.lower() for op in Op]
        elements = [element.name.lower() for element in Element]
        columns: dict[str, pa.Array] = {
            "op": _decode(self.op, ops),
            "element": _decode(self.element, elements),
            "src": self.src.to_arrow(),
            "dst": pa.nulls(n, self.src.to_arrow().type) if self.dst is None else self.dst.to_arrow(),
            "time": _time_column(self.time),
        }
        if self.key is not None:
            columns["key"] = self.key.to_arrow()
        if self.feature is not None:
            columns["feature"] = _decode(self.feature, list(self.names))
        if self.values is not None and self.value_offsets is not None:
            columns["value"] = pa.LargeListArray.from_arrays(
                pa.array(self.value_offsets),
                pa.array(self.values, pa.float32()),
                mask=pa.array(self.value_offsets[1:] == self.value_offsets[:-1]),
            )
        for name in ("arrival", "partition", "offset"):
            column = getattr(self, name)
            if column is not None:
                columns[name] = _time_column(column)
        return pa.table(columns)

    def row(self, i: int) -> Event:
        """Event i, as it came in where that is known."""
        return self.rows([i])[0]

    def rows(self, index: Sequence[int]) -> list[Event]:
        """The events at these positions, as they came in where that is known."""
        if not len(index):
            return []
        if self.origin is None:
            table = self.take(np.asarray(index, np.int64)).to_arrow()
            return EventBatch.from_arrow(table).rows(range(len(index)))
        if not isinstance(self.origin, pa.Table):
            return [self.origin[i] for i in index]
        found = []
        for i, row in zip(index, self.origin.take(pa.array(index, pa.int64())).to_pylist(), strict=True):
            known = {name: row[name] for name in Event._fields if name in row}
            defaults = {"op": "create", "element": "edge" if "dst" in row else "vertex"}
            for name, column in (("time", self.time), ("arrival", self.arrival)):
                if column is not None:  # timestamps as the integers that they count as
                    known[name] = None if column[i] == NO_TIME else int(column[i])
            found.append(Event(**(defaults | known)))
        return found

    def between(self, begin: int, end: int) -> EventBatch:
        """The events from `begin` to `end`, without copying where that can be."""

        def cut(column: Any) -> Any:
            return None if column is None else column[begin:end]

        def keys(column: Keys | None) -> Any:
            if isinstance(column, IntKeys):
                return IntKeys(column.values[begin:end], cut(column.valid))
            return None if column is None else column.take(slice(begin, end))

        values, offsets, origin = self.values, self.value_offsets, self.origin
        if values is not None and offsets is not None:
            values = values[offsets[begin] : offsets[end]]
            offsets = offsets[begin : end + 1] - offsets[begin]
        return EventBatch(
            self.op[begin:end], self.element[begin:end], keys(self.src), self.time[begin:end],
            keys(self.dst), keys(self.key), cut(self.feature), self.names, values, offsets,
            cut(self.arrival), cut(self.partition), cut(self.offset),
            origin.slice(begin, end - begin) if isinstance(origin, pa.Table) else cut(origin),
        )  # fmt: skip

    def take(self, index: Array | slice) -> EventBatch:
        """The events at `index` (an array of positions, a mask, or a slice)."""
        if isinstance(index, slice):
            index = np.arange(*index.indices(len(self)))
        elif index.dtype == np.bool_:
            index = np.flatnonzero(index)

        def pick(column: Any) -> Any:
            return None if column is None else column[index]

        values, offsets = self.values, self.value_offsets
        if values is not None and offsets is not None:
            lengths = (offsets[1:] - offsets[:-1])[index]
            chosen = _offsets(lengths)
            flat = np.arange(chosen[-1]) + np.repeat(offsets[:-1][index] - chosen[:-1], lengths)
            values, offsets = values[flat], chosen
        return replace(
            self,
            op=self.op[index],
            element=self.element[index],
            src=self.src.take(index),
            time=self.time[index],
            dst=None if self.dst is None else self.dst.take(index),
            key=None if self.key is None else self.key.take(index),
            feature=pick(self.feature),
            values=values,
            value_offsets=offsets,
            arrival=pick(self.arrival),
            partition=pick(self.partition),
            offset=pick(self.offset),
            origin=None,
        )

    @staticmethod
    def concat(batches: Sequence[EventBatch]) -> EventBatch:
        """All events of several batches of one id type, one after another."""
        if len(batches) == 1:
            return batches[0]
        if not batches:
            return EventBatch.of([])
        lengths = [len(b) for b in batches]

        def join(name: str, fill: Any, dtype: type) -> Any:
            columns = [getattr(b, name) for b in batches]
            if all(c is None for c in columns):
                return None
            filled = (
                np.full(n, fill, dtype) if c is None else c for c, n in zip(columns, lengths, strict=True)
            )
            return np.concatenate(list(filled))

        names = tuple(sorted({name for b in batches for name in b.names}))
        feature = np.concatenate([_recode(b, names) for b in batches]) if names else None
        values = offsets = None
        if any(b.values is not None for b in batches):
            values = np.concatenate([b.values for b in batches if b.values is not None])
            widths = [
                np.zeros(len(b), np.int64) if b.value_offsets is None else np.diff(b.value_offsets)
                for b in batches
            ]
            offsets = _offsets(np.concatenate(widths))
        return EventBatch(
            op=np.concatenate([b.op for b in batches]),
            element=np.concatenate([b.element for b in batches]),
            src=concat_keys([b.src for b in batches]),
            time=np.concatenate([b.time for b in batches]),
            dst=_concat_optional(batches, "dst"),
            key=_concat_optional(batches, "key"),
            feature=feature,
            names=names,
            values=values,
            value_offsets=offsets,
            arrival=join("arrival", NO_TIME, np.int64),
            partition=join("partition", NO_TIME, np.int64),
            offset=join("offset", NO_TIME, np.int64),
        )


def _recode(batch: EventBatch, names: tuple[str, ...]) -> Ints32:
    if batch.feature is None:
        return np.full(len(batch), -1, np.int32)
    lookup: Ints32 = np.array([names.index(name) for name in batch.names] + [-1], np.int32)
    return lookup[batch.feature]


def _concat_optional(batches: Sequence[EventBatch], name: str) -> Keys | None:
    columns: list[Keys | None] = [getattr(b, name) for b in batches]
    given = [c for c in columns if c is not None]
    if not given:
        return None
    return concat_keys(
        [null_keys(type(given[0]), len(b)) if c is None else c for b, c in zip(batches, columns, strict=True)]
    )


def _keys(ids: Any) -> Keys:
    if isinstance(ids, IntKeys) or hasattr(ids, "offsets"):
        return ids  # type: ignore[no-any-return]
    if isinstance(ids, pa.Array | pa.ChunkedArray):
        return keys_from_arrow(ids)
    return keys_of(ids.tolist() if isinstance(ids, np.ndarray) else list(ids))


def _optional_keys(keys: Sequence[Key | None]) -> Keys | None:
    return None if all(k is None for k in keys) else keys_of(keys)


def _optional_ints(column: Sequence[int | None]) -> Ints | None:
    if all(c is None for c in column):
        return None
    return np.array([NO_TIME if c is None else c for c in column], np.int64)


def _offsets(lengths: Any) -> Ints:
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _encode_names(column: Sequence[str | None]) -> tuple[tuple[str, ...], Ints32 | None]:
    names = tuple(sorted({c for c in column if c is not None}))
    if not names:
        return (), None
    index = {name: i for i, name in enumerate(names)}
    return names, np.array([-1 if c is None else index[c] for c in column], np.int32)


def _decode(codes: Small | Ints32, names: list[str]) -> pa.Array:
    known = codes >= 0
    return pa.DictionaryArray.from_arrays(
        pa.array(codes.astype(np.int32), mask=~known), pa.array(names, pa.string())
    ).cast(pa.string())


def _codes(column: pa.ChunkedArray, known: dict[str, int]) -> Small:
    column = column.cast(pa.string()).combine_chunks().dictionary_encode()
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    codes = [known.get(name, UNKNOWN) for name in column.dictionary.to_pylist()]
    lookup: Small = np.array([*codes, UNKNOWN], np.int8)
    return lookup[np.asarray(column.indices.fill_null(len(codes)), np.int64)]


def _arrow_keys(table: pa.Table, name: str) -> Keys | None:
    if name not in table.column_names or table[name].null_count == table.num_rows > 0:
        return None
    return keys_from_arrow(table[name])


def _arrow_ints(table: pa.Table, name: str, default: Any) -> Any:
    if name not in table.column_names:
        return default
    column = table[name].combine_chunks()
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False)  # nanoseconds are cut off
    return np.asarray(column.cast(pa.int64()).fill_null(NO_TIME))


def _arrow_values(column: pa.ChunkedArray) -> tuple[Floats | None, Ints | None]:
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
        return np.asarray(flat).astype(np.float32), _offsets(lengths)


def _time_column(times: Ints) -> pa.Array:
    return pa.array(times, pa.int64(), mask=times == NO_TIME)
