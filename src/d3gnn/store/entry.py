"""Entries of the graph log as Parquet files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from d3gnn.events import EventBatch, Reason
from d3gnn.events.event import NO_TIME
from d3gnn.kernel.log import LogEntry
from d3gnn.store.input_hash import input_hash
from d3gnn.store.seal import Kind, Seal, SealBroken, open_sealed, read_footer, seal
from d3gnn.store.store import StoreDamaged, StoreError
from d3gnn.types import Small

_FORMAT = 2
_PREFIX = b"d3gnn."
#: The Arrow types of ids and edge keys, by their names in the settings of a store.
KEY_TYPES = {"int": pa.int64(), "string": pa.large_string()}

# How columns are encoded: few distinct values; numbers close to each other; numbers that do not compress.
_FEW = ["batch", "op", "element", "feature", "part"]
_CLOSE = ["row", "time", "arrival", "partition", "offset"]
_VALUES = "value.list.element"

#: What reading a damaged file may raise. ArrowInvalid and others are ValueErrors.
_UNREADABLE = (SealBroken, pa.ArrowException, ValueError, KeyError, TypeError)


@dataclass(frozen=True, slots=True)
class EntryMeta:
    """The metadata of an entry, over all rows of its batch, also those that changed nothing."""

    batch: int
    rows: int
    input_hash: int
    model_version: int = 0
    #: The clocks of windows after the batch, in microseconds.
    clock: int = 0
    newest_event: int = 0
    repeated: int = 0
    late: int = 0
    dead: int = 0
    #: The newest event time after the batch, by which edges expire; `NO_TIME` if none does.
    watermark: int = NO_TIME

    @staticmethod
    def of(
        batch: int,
        events: EventBatch,
        status: Small,
        *,
        model_version: int = 0,
        clock: int = 0,
        newest_event: int = 0,
        watermark: int = NO_TIME,
    ) -> EntryMeta:
        """Of a batch whose events have the results `status` (`d3gnn.events.Reason`)."""
        return EntryMeta(
            batch=batch,
            rows=len(events),
            input_hash=input_hash(events),
            model_version=model_version,
            clock=clock,
            newest_event=newest_event,
            repeated=int(np.count_nonzero(status == Reason.REPEATED)),
            late=int(np.count_nonzero(status == Reason.LATE)),
            dead=int(np.count_nonzero(status >= Reason.NULL_ID)),
            watermark=watermark,
        )


class EntryFormat:
    """Writes and reads the entries of one store, which all have the same columns.

    store:
        The name of the store, for errors.
    settings:
        The settings of the store: `ids` and `keys`, each `"int"` or `"string"`.
    """

    def __init__(self, store: str, settings: Mapping[str, Any]) -> None:
        self._store = store
        types = {}
        for name in ("ids", "keys"):
            type = settings.get(name)
            if type not in KEY_TYPES:
                raise StoreError(
                    f"the settings of the store {store} have {name}={type!r}: must be 'int' or 'string'"
                )
            types[name] = KEY_TYPES[type]
        # Stores whose edges do not expire have no column for lifetimes, as before there were any.
        expires = settings.get("schema", {}).get("ttl") is not None
        self.schema = pa.schema(
            {
                "batch": pa.int64(),
                "row": pa.int32(),
                "op": pa.string(),
                "element": pa.string(),
                "src": types["ids"],
                "dst": types["ids"],
                "key": types["keys"],
                "feature": pa.string(),
                "value": pa.large_list(pa.float32()),
                "time": pa.int64(),
                "arrival": pa.int64(),
                "partition": pa.int64(),
                "offset": pa.int64(),
                "part": pa.int32(),
                **({"ttl": pa.int64()} if expires else {}),
            }
        )

    def table(self, batch: int, entry: LogEntry) -> pa.Table:
        """An entry as the table in its file."""
        n, events = len(entry), entry.events
        if entry.arrival is not None:
            events = replace(events, arrival=entry.arrival)
        table = events.to_arrow()
        columns: dict[str, Any] = dict(zip(table.column_names, table.columns, strict=True))
        columns["batch"] = pa.array(np.full(n, batch, np.int64))
        columns["row"] = pa.array(np.arange(n, dtype=np.int32))
        columns["part"] = pa.array(entry.part, pa.int32())
        # A column of keys of the other type belongs to dead letters only, which are not in the entry.
        for name in ("src", "dst", "key"):
            if name in columns and columns[name].type != self.schema.field(name).type:
                if n and name == "src":
                    raise TypeError(
                        f"batch {batch} has ids of the type {columns[name].type}, but the store "
                        f"{self._store} is for ids of the type {self.schema.field(name).type}"
                    )
                del columns[name]
        return pa.table(
            [columns[f.name] if f.name in columns else pa.nulls(n, f.type) for f in self.schema],
            schema=self.schema,
        )

    def write(
        self, kind: Kind, entry: LogEntry, meta: EntryMeta, previous: bytes
    ) -> tuple[list[memoryview], bytes]:
        """An entry as the content of a sealed file, in pieces, and the digest of the file.

        `previous` is the digest of the file before it in the chain.
        """
        values = {"format": _FORMAT, **asdict(meta)}
        metadata = {_PREFIX + name.encode(): str(value).encode() for name, value in values.items()}
        sink = pa.BufferOutputStream()
        pq.write_table(
            self.table(meta.batch, entry).replace_schema_metadata(metadata),
            sink,
            compression={f.name: "zstd" for f in self.schema if f.name != "value"} | {_VALUES: "none"},
            use_dictionary=_FEW,
            column_encoding=dict.fromkeys(_CLOSE, "DELTA_BINARY_PACKED"),
        )
        return seal(kind, sink.getvalue(), previous)

    def read(self, kind: Kind, path: str, batch: int, data: bytes) -> tuple[LogEntry, EntryMeta, Seal]:
        """The entry of a batch, from the content of the file at `path`."""
        try:
            found = open_sealed(kind, data)
            with pq.ParquetFile(pa.BufferReader(data)) as file:
                table, metadata = file.read(), file.schema_arrow.metadata
            meta = self._meta(path, batch, metadata)
            names = [name for name in table.column_names if not 0 < len(table) == table[name].null_count]
            events = replace(EventBatch.from_arrow(table.select(names)), origin=None)
            return LogEntry(events, np.asarray(table["part"], np.int32)), meta, found
        except (*_UNREADABLE, OSError) as error:  # the data is in memory: Parquet's, not the disk's
            raise StoreDamaged.of(path, self._store, error) from error

    def read_meta(self, kind: Kind, path: str, batch: int, source: pa.NativeFile) -> tuple[EntryMeta, Seal]:
        """The metadata of the entry of a batch, from the open file at `path`."""
        try:
            found, footer = read_footer(kind, source)
            metadata = pq.read_metadata(pa.BufferReader(footer)).metadata
            return self._meta(path, batch, metadata), found
        except _UNREADABLE as error:
            raise StoreDamaged.of(path, self._store, error) from error

    def _meta(self, path: str, batch: int, metadata: Mapping[bytes, bytes]) -> EntryMeta:
        written = int(metadata[_PREFIX + b"format"])
        meta = EntryMeta(**{f.name: int(metadata[_PREFIX + f.name.encode()]) for f in fields(EntryMeta)})
        if (written, meta.batch) != (_FORMAT, batch):
            raise StoreDamaged.of(
                path,
                self._store,
                f"it is of batch {meta.batch}, format {written}; expected batch {batch}, format {_FORMAT}",
            )
        return meta
