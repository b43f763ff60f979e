"""Dead letters: the events that could not be applied, with their reasons, as Parquet files in the store."""

from __future__ import annotations

import io
from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq

from d3gnn.events import EventBatch, Reason
from d3gnn.store.entry import KEY_TYPES
from d3gnn.store.store import Store
from d3gnn.types import Small

#: Stands for a batch: the file without rows.
_NO_BATCH = 10**12 - 1


class DeadLetterFound(RuntimeError):
    """An event could not be applied, in a pipeline that stops at dead letters."""

    @staticmethod
    def of(batch: int, events: EventBatch, status: Small) -> DeadLetterFound:
        """About the first dead letter of a batch."""
        first = int((status >= Reason.NULL_ID).nonzero()[0][0])
        return DeadLetterFound(f"batch {batch}: {events.row(first)}: {Reason(int(status[first])).text}")


def put_dead_letters(store: Store, batch: int, events: EventBatch, status: Small) -> None:
    """Write the dead letters of a batch, if it has any and they are not there yet."""
    dead = (status >= Reason.NULL_ID).nonzero()[0]
    if not len(dead):
        return
    table = replace(events.take(dead), origin=None).to_arrow()
    table = table.append_column("reason", pa.array([Reason(int(reason)).text for reason in status[dead]]))
    table = table.append_column("batch", pa.array([batch] * len(dead), pa.int64()))
    # All files have all columns: readers of the folder take the schema of any of them.
    columns = [
        table[field.name] if field.name in table.column_names else pa.nulls(len(dead), field.type)
        for field in _schema(store)
    ]
    _write(store, batch, pa.table(columns, names=_schema(store).names))


def put_no_dead_letters(store: Store) -> None:
    """Write a file without rows, so that the folder can be read as a table before the first dead letter."""
    if not store.exists(_path(_NO_BATCH)):
        _write(store, _NO_BATCH, _schema(store).empty_table())


def count_dead_letters(store: Store, batch: int) -> Counter[str]:
    """The number of dead letters of a batch for each reason."""
    if not store.exists(_path(batch)):
        return Counter()
    with store.open_input(_path(batch)) as file:
        return Counter(pq.read_table(file, columns=["reason"])["reason"].to_pylist())


def _schema(store: Store) -> pa.Schema:
    ids, keys = (KEY_TYPES[store.settings[name]] for name in ("ids", "keys"))
    return pa.schema(
        {
            "op": pa.string(),
            "element": pa.string(),
            "src": ids,
            "dst": ids,
            "key": keys,
            "feature": pa.string(),
            "value": pa.large_list(pa.float32()),
            "time": pa.int64(),
            "arrival": pa.int64(),
            "partition": pa.int64(),
            "offset": pa.int64(),
            "reason": pa.string(),
            "batch": pa.int64(),
        }
    )


def _write(store: Store, batch: int, table: pa.Table) -> None:
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    store.create(_path(batch), buffer.getvalue())


def _path(batch: int) -> str:
    return f"dead_letters/{batch:012d}.parquet"
