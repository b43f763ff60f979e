"""Dead letters: the events that could not be applied, with their reasons, as Parquet files in the store."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq

from d3gnn.events import EventBatch, Reason
from d3gnn.store.entry import KEY_TYPES
from d3gnn.store.names import dead_letters_path
from d3gnn.store.seal import Kind, SealBroken, digest_of, open_sealed, seal
from d3gnn.store.store import Store, StoreDamaged
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
    store.create(dead_letters_path(batch), *_sealed(batch, pa.table(columns, names=_schema(store).names)))


def put_no_dead_letters(store: Store) -> None:
    """Write a file without rows, so that the folder can be read as a table before the first dead letter."""
    path = dead_letters_path(_NO_BATCH)
    if not store.exists(path):
        store.create(path, *_sealed(_NO_BATCH, _schema(store).empty_table()))


def replace_dead_letters(store: Store, batch: int, table: pa.Table) -> None:
    """Put other dead letters in the place of those of a batch, of a stopped pipeline; none: delete them."""
    if len(table):
        store.replace(dead_letters_path(batch), *_sealed(batch, table))
    else:
        store.delete(dead_letters_path(batch))


def read_dead_letters(store: Store, batch: int) -> pa.Table | None:
    """The dead letters of a batch with their reasons; None if it has none."""
    path = dead_letters_path(batch)
    data = store.read(path)
    if data is None:
        return None
    try:
        if open_sealed(Kind.DEAD_LETTERS, data).previous != _mark(batch):
            raise SealBroken("it is of another batch")
        return pq.read_table(pa.BufferReader(data))
    except (SealBroken, pa.ArrowException, OSError) as error:
        raise StoreDamaged.of(path, store.uri, error) from error


def count_dead_letters(store: Store, batch: int) -> Counter[str]:
    """The number of dead letters of a batch for each reason."""
    table = read_dead_letters(store, batch)
    return Counter() if table is None else Counter(table["reason"].to_pylist())


def _sealed(batch: int, table: pa.Table) -> list[memoryview]:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return seal(Kind.DEAD_LETTERS, sink.getvalue(), _mark(batch))[0]


def _mark(batch: int) -> bytes:
    """Ties a file to its batch. The files have no chain."""
    return digest_of(str(batch).encode())


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
            "ttl": pa.int64(),
            "reason": pa.string(),
            "batch": pa.int64(),
        }
    )
