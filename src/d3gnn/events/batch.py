"""A batch of events as columns, which is what the kernel works on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from d3gnn.events.columns import (
    ELEMENTS,
    OPS,
    UNKNOWN,
    arrow_codes,
    arrow_ints,
    arrow_keys,
    arrow_names,
    arrow_values,
    as_keys,
    as_times,
    encode_names,
    integers,
    named,
    names_of,
    nullable_ints,
    offsets_of,
    optional_ints,
    optional_keys,
    with_integer_times,
)
from d3gnn.events.event import NO_TIME, Element, Event, Op
from d3gnn.events.keys import IntKeys, Keys, concat_keys, keys_from_arrow, keys_of, null_keys
from d3gnn.events.neighbours import NEIGHBOURS, expanded, expanded_table
from d3gnn.types import Array, Floats, Ints, Ints32, Small

_COLUMNS = [
    "element", "src", "time", "dst", "key", "feature", "arrival", "partition", "offset", "ttl", "origin",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Events as columns, in any order; a column that is `None` is all null.

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
    #: All values, concatenated; those of event i are `values[value_offsets[i]:value_offsets[i + 1]]`.
    values: Floats | None = None
    value_offsets: Ints | None = None
    arrival: Ints | None = None
    partition: Ints | None = None
    offset: Ints | None = None
    #: The lifetime of each new edge that has one of its own; 0 in deletes that expiry made.
    ttl: Ints | None = None
    #: The original rows, for dead letters.
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
    def edges(
        src: Any, dst: Any, *, time: Any = None, op: Op = Op.CREATE, arrival: Any = None, ttl: Any = None
    ) -> EventBatch:
        """Events of edges, from arrays or lists of ids; `time` and `arrival` take datetimes as well.

        >>> from datetime import datetime
        >>> EventBatch.edges(["ann"], ["bob"], time=[datetime(1970, 1, 1, second=2)]).row(0)
        create edge ann -> bob at 2000000
        """
        src, dst = as_keys(src), as_keys(dst)
        n = len(src)
        return EventBatch(
            op=np.full(n, op, np.int8),
            element=np.full(n, Element.EDGE, np.int8),
            src=src,
            dst=dst,
            time=as_times(time, n),
            arrival=None if arrival is None else as_times(arrival, n),
            ttl=None if ttl is None else np.asarray(ttl, np.int64),
        )

    @staticmethod
    def of(events: EventBatch | pa.Table | Iterable[Event]) -> EventBatch:
        """A batch from rows, from an Arrow table (see `from_arrow`), or from a batch, which is returned."""
        if isinstance(events, EventBatch):
            return events
        if isinstance(events, pa.Table | pa.RecordBatch):
            return EventBatch.from_arrow(events)
        rows = [] if isinstance(events, Event) else list(events)
        if isinstance(events, Event) or not all(isinstance(row, Event) for row in rows):
            given = "a list of other rows" if isinstance(events, list) else f"a {type(events).__name__}"
            raise TypeError(
                f"a batch cannot be made of {given}: give a list such as [events.edge('ann', 'bob')], "
                "an EventBatch or an Arrow table (pyarrow.Table.from_pandas converts a pandas DataFrame)"
            )
        return EventBatch._from_rows(rows)

    @staticmethod
    def _from_rows(rows: list[Event]) -> EventBatch:
        rows = with_integer_times(rows)
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(Event._fields)
        op, element, src, dst, key, feature, value, time, arrival, partition, offset, ttl, near = columns
        if any(near):
            return EventBatch._from_rows(expanded(rows))
        names, codes = encode_names(feature)
        lengths = [0 if v is None else len(v) for v in value]
        flat = [x for v in value if v is not None for x in v]
        with np.errstate(over="ignore"):  # too large for float32 becomes infinity, and a dead letter
            values = np.array(flat, np.float64).astype(np.float32)
        return EventBatch(
            op=np.array([OPS.get(o, UNKNOWN) for o in op], np.int8),
            element=np.array([ELEMENTS.get(e, UNKNOWN) for e in element], np.int8),
            src=keys_of(src),
            dst=optional_keys(dst),
            key=optional_keys(key),
            feature=codes,
            names=names,
            values=values if flat else None,
            value_offsets=offsets_of(lengths) if flat else None,
            time=integers("time", [NO_TIME if t is None else t for t in time]),
            arrival=optional_ints("arrival", arrival),
            partition=optional_ints("partition", partition),
            offset=optional_ints("offset", offset),
            ttl=optional_ints("ttl", ttl),
            origin=rows,
        )

    @staticmethod
    def from_arrow(table: pa.Table | pa.RecordBatch) -> EventBatch:
        """A batch from an Arrow table with the columns of `Event`, of which only `src` is required.

        Without `op` every row is a create. Without `element` every row is an edge if there is a column `dst`,
        else a vertex. A null there means the same as no column. `neighbours` is a list of ids for each new
        vertex, to which it has edges.
        """
        if isinstance(table, pa.RecordBatch):
            table = pa.Table.from_batches([table])
        if NEIGHBOURS in table.column_names:
            table = expanded_table(table)
        n, has = table.num_rows, set(table.column_names)
        if "src" not in has:
            raise ValueError(f"events need a column 'src'; these have {', '.join(table.column_names)}")
        dst = arrow_keys(table, "dst")
        names, feature = arrow_names(table, "feature")
        values, offsets = arrow_values(table["value"]) if "value" in has else (None, None)
        element = Element.EDGE if "dst" in has else Element.VERTEX
        return EventBatch(
            op=arrow_codes(table, "op", OPS, Op.CREATE),
            element=arrow_codes(table, "element", ELEMENTS, element),
            src=keys_from_arrow(table["src"]),
            dst=dst,
            key=arrow_keys(table, "key"),
            feature=feature,
            names=names,
            values=values,
            value_offsets=offsets,
            time=arrow_ints(table, "time", np.zeros(n, np.int64)),
            arrival=arrow_ints(table, "arrival", None),
            partition=arrow_ints(table, "partition", None),
            offset=arrow_ints(table, "offset", None),
            ttl=arrow_ints(table, "ttl", None),
            origin=table,
        )

    def to_arrow(self) -> pa.Table:
        """The batch as an Arrow table in the event format."""
        n = len(self)
        columns: dict[str, pa.Array] = {
            "op": named(self.op, list(OPS)),
            "element": named(self.element, list(ELEMENTS)),
            "src": self.src.to_arrow(),
            "dst": pa.nulls(n, self.src.to_arrow().type) if self.dst is None else self.dst.to_arrow(),
            "time": nullable_ints(self.time),
        }
        if self.key is not None:
            columns["key"] = self.key.to_arrow()
        if self.feature is not None:
            columns["feature"] = names_of(self.feature, list(self.names))
        if self.values is not None and self.value_offsets is not None:
            columns["value"] = pa.LargeListArray.from_arrays(
                pa.array(self.value_offsets),
                pa.array(self.values, pa.float32()),
                mask=pa.array(self.value_offsets[1:] == self.value_offsets[:-1]),
            )
        for name in ("arrival", "partition", "offset", "ttl"):
            column = getattr(self, name)
            if column is not None:
                columns[name] = nullable_ints(column)
        return pa.table(columns)

    def row(self, i: int) -> Event:
        """Event i, in its original form if the batch came from rows or a table."""
        return self.rows([i])[0]

    def rows(self, index: Sequence[int]) -> list[Event]:
        """The events at these positions, in their original form if the batch came from rows or a table."""
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
            usual = {"op": "create", "element": "edge" if "dst" in row else "vertex"}
            defaults = {name: word for name, word in usual.items() if known.get(name) is None}
            for name, column in (("time", self.time), ("arrival", self.arrival)):
                if column is not None:  # timestamps as microseconds
                    known[name] = None if column[i] == NO_TIME else int(column[i])
            found.append(Event(**(known | defaults)))
        return found

    def between(self, begin: int, end: int) -> EventBatch:
        """The events from `begin` to `end`, without a copy if possible."""

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
            cut(self.arrival), cut(self.partition), cut(self.offset), cut(self.ttl),
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
            chosen = offsets_of(lengths)
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
            ttl=pick(self.ttl),
            origin=None,
        )

    @staticmethod
    def concat(batches: Sequence[EventBatch], *, arrival: Ints | None = None) -> EventBatch:
        """The events of several batches with the same type of ids, one batch after another.

        With `arrival`, these are their arrivals.
        """
        if len(batches) == 1:
            return batches[0] if arrival is None else replace(batches[0], arrival=arrival)
        if not batches:
            return EventBatch.of([])
        lengths = [len(b) for b in batches]

        def join(columns: list[Ints | None]) -> Ints | None:
            given = [c for c in columns if c is not None]
            if not given:
                return None
            if len(given) < len(columns):
                both = zip(columns, lengths, strict=True)
                given = [np.full(n, NO_TIME, np.int64) if c is None else c for c, n in both]
            return np.concatenate(given)

        names = tuple(sorted({name for b in batches for name in b.names}))
        feature = np.concatenate([_recoded(b, names) for b in batches]) if names else None
        values = offsets = None
        if any(b.values is not None for b in batches):
            values = np.concatenate([b.values for b in batches if b.values is not None])
            widths = [
                np.zeros(len(b), np.int64) if b.value_offsets is None else np.diff(b.value_offsets)
                for b in batches
            ]
            offsets = offsets_of(np.concatenate(widths))
        return EventBatch(
            op=np.concatenate([b.op for b in batches]),
            element=np.concatenate([b.element for b in batches]),
            src=concat_keys([b.src for b in batches]),
            time=np.concatenate([b.time for b in batches]),
            dst=_concat_optional([b.dst for b in batches], lengths),
            key=_concat_optional([b.key for b in batches], lengths),
            feature=feature,
            names=names,
            values=values,
            value_offsets=offsets,
            arrival=join([b.arrival for b in batches]) if arrival is None else arrival,
            partition=join([b.partition for b in batches]),
            offset=join([b.offset for b in batches]),
            ttl=join([b.ttl for b in batches]),
        )


def _recoded(batch: EventBatch, names: tuple[str, ...]) -> Ints32:
    """The feature codes of a batch as indices into `names`, which contains its own names."""
    if batch.feature is None:
        return np.full(len(batch), -1, np.int32)
    lookup: Ints32 = np.array([names.index(name) for name in batch.names] + [-1], np.int32)
    return lookup[batch.feature]


def _concat_optional(columns: list[Keys | None], lengths: list[int]) -> Keys | None:
    given = [c for c in columns if c is not None]
    if not given:
        return None
    if len(given) < len(columns):
        both = zip(columns, lengths, strict=True)
        given = [null_keys(type(given[0]), n) if c is None else c for c, n in both]
    return concat_keys(given)
