"""The graph log: for each batch the events that changed the graph, as Parquet files in a store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from d3gnn.events import NO_TIME, EventBatch, GraphSchema, IntKeys, Reason, keys_of
from d3gnn.kernel.compiled import compiled
from d3gnn.kernel.hashing import hash_ints, hash_keys, mix
from d3gnn.kernel.log import compact
from d3gnn.kernel.operators.partition import LogEntry
from d3gnn.spark.store import Store, StoreError
from d3gnn.types import Array, Bools, Hashes, Ints, Small

__all__ = ["EntryMeta", "GraphLog", "LogGap", "ReplayMismatch", "input_hash"]

_FORMAT = 1
_LOG, _SNAPSHOTS = "log", "snapshots"
_PREFIX = b"d3gnn."
_KEY_TYPES = {"int": pa.int64(), "string": pa.large_string()}

# Few distinct values; numbers close to each other; numbers that do not compress.
_FEW = ["batch", "op", "element", "feature", "part"]
_CLOSE = ["row", "time", "arrival", "partition", "offset"]
_VALUES = "value.list.element"


class LogGap(StoreError):
    """Entries of the log are missing: input is lost."""


class ReplayMismatch(StoreError):
    """A batch that came again has other rows than the first time."""


@dataclass(frozen=True, slots=True)
class EntryMeta:
    """What an entry says about its batch, all of whose rows count, also those that changed nothing."""

    batch: int
    rows: int
    input_hash: int
    model_version: int = 0
    clock: int = 0
    newest_event: int = 0
    repeated: int = 0
    late: int = 0
    dead: int = 0

    @staticmethod
    def of(
        batch: int,
        events: EventBatch,
        status: Small,
        *,
        model_version: int = 0,
        clock: int = 0,
        newest_event: int = 0,
    ) -> EntryMeta:
        """About this batch, whose events ended as `status` says (`d3gnn.events.Reason`)."""
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
        )


class GraphLog:
    """The log in a store: one entry per batch, created once, and snapshots that stand for all before them.

    The store's settings say what ids and edge keys are: `ids` and `keys`, each `"int"` or `"string"`.

    >>> import tempfile
    >>> from d3gnn.kernel.operators import Partition
    >>> store = Store(tempfile.mkdtemp())
    >>> store.fix({"ids": "int", "keys": "int"})
    >>> log, batch = GraphLog(store), EventBatch.edges([1, 2, 1], [2, 3, 2])
    >>> result = Partition(GraphSchema(), parts=2).process(batch, clock=0)
    >>> log.create(0, result.entry, EntryMeta.of(0, batch, result.status))
    True
    >>> entry, meta = log.read(0)
    >>> len(entry), meta.rows, meta.repeated
    (2, 3, 1)
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._schema = _schema(store)
        self._last: int | None = None

    def __repr__(self) -> str:
        return f"GraphLog({self.store!r})"

    def create(self, batch: int, entry: LogEntry, meta: EntryMeta) -> bool:
        """Write entry `batch`; False if it is there already, as another wrote it: then that one counts."""
        if meta.batch != batch:
            raise ValueError(f"the entry of batch {batch} comes with what is known about batch {meta.batch}")
        return self.store.create(_entry_path(batch), self._to_parquet(entry, meta))

    def read(self, batch: int) -> tuple[LogEntry, EntryMeta] | None:
        """Entry `batch`; None if there is none. Its events carry the arrival that they were given."""
        return self._read(_entry_path(batch), batch)

    def meta(self, batch: int) -> EntryMeta | None:
        """What entry `batch` says about its batch, without its events."""
        path = _entry_path(batch)
        try:
            source = self.store.open_input(path)
        except FileNotFoundError:
            return None
        with source, self._open(path, batch, source) as file:
            return _meta(file)

    def last(self) -> int | None:
        """The newest batch that has an entry."""
        if self._last is None or not self.store.exists(_entry_path(self._last)):
            batches = self._batches(_LOG)
            self._last = batches[-1] if batches else None
        if self._last is not None:
            while self.store.exists(_entry_path(self._last + 1)):
                self._last += 1
        return self._last

    def check_next(self, batch: int) -> None:
        """See that every batch before this one has its entry; raises `LogGap` if not."""
        if batch == 0 or self.store.exists(_entry_path(batch - 1)):
            return
        last = self.last()
        first = 0 if last is None else last + 1
        if batch > first:
            raise self._gap(
                range(first, batch),
                f"batch {batch} comes next",
                " Perhaps a foreachBatch callback ran no action on them while adaptive execution was off, so "
                "that no operator saw them.",
            )

    def same_input(self, meta: EntryMeta, events: EventBatch) -> None:
        """See that a batch that comes again has the rows that it had; raises `ReplayMismatch` if not."""
        if len(events) == meta.rows and input_hash(events) == meta.input_hash:
            return
        rows = "other rows" if len(events) == meta.rows else f"{len(events):,} rows"
        raise ReplayMismatch(
            f"the source gave other rows for batch {meta.batch} than before: {rows}, where there were "
            f"{meta.rows:,} when the batch was logged in {self.store.uri}. Nothing of them was applied. A "
            "source must give the same rows for the same offsets: look for files changed or removed, "
            "records that have expired, a column that is made anew each time (random numbers, time of day)."
        )

    def entries(self, upto: int | None = None) -> list[LogEntry]:
        """What makes the graph as it was after batch `upto` (the newest unless given), in order: the newest
        snapshot up to there, if there is one, and the entries after it. Empty ones are left out.
        """
        upto = self.last() if upto is None else upto
        if upto is None:
            return []
        while True:
            snapshot = self._snapshot(upto)
            try:
                return self._entries(snapshot, upto)
            except LogGap:
                # Perhaps a newer snapshot has just taken the place of what is missing.
                if self._snapshot(upto) == snapshot:
                    raise

    def compact(self, upto: int, schema: GraphSchema, parts: int, *, forget_history: bool = False) -> None:
        """Write a snapshot of the graph after batch `upto`, so that a rebuild begins there.

        Entries stay, as history; with `forget_history` those before `upto` are deleted. The entry of `upto`
        stays in any case: its batch may come again.
        """
        if self._snapshot(upto) != upto:
            meta = self.meta(upto)
            entries = self.entries(upto)
            if meta is None:
                raise self._gap([upto], f"a snapshot of batch {upto} is wanted")
            entry = compact(entries, schema, parts) or LogEntry(EventBatch.of([]), np.zeros(0, np.int32))
            self.store.create(_snapshot_path(upto), self._to_parquet(entry, meta))
        # While batch `upto` may come again, the graph before it is asked for, too: for what it deletes.
        before = self._snapshot(upto - 1)
        for older in self._batches(_SNAPSHOTS):
            if older < upto and (forget_history or older != before):
                self.store.delete(_snapshot_path(older))
        if forget_history:
            for older in self._batches(_LOG):
                if older < upto:
                    self.store.delete(_entry_path(older))

    # ------------------------------------------------------------------

    def _batches(self, folder: str) -> list[int]:
        return [int(name.partition(".")[0]) for name in self.store.list(folder)]

    def _snapshot(self, upto: int) -> int | None:
        return max((batch for batch in self._batches(_SNAPSHOTS) if batch <= upto), default=None)

    def _entries(self, snapshot: int | None, upto: int) -> list[LogEntry]:
        found: list[LogEntry] = []
        missing: list[int] = []
        if snapshot is not None:
            read = self._read(_snapshot_path(snapshot), snapshot)
            if read is None:
                raise self._gap([snapshot], f"the graph after batch {upto} is wanted")
            found.append(read[0])
        first = 0 if snapshot is None else snapshot + 1
        for batch in range(first, upto + 1):
            read = self.read(batch)
            if read is None:
                missing.append(batch)
            elif not missing:
                found.append(read[0])
        if missing:
            raise self._gap(missing, f"the graph after batch {upto} is wanted")
        return [entry for entry in found if len(entry)]

    def _gap(self, missing: Sequence[int], why: str, perhaps: str = "") -> LogGap:
        return LogGap(
            f"the graph log in {self.store.uri} has no entry for {_ranges(missing)}, but {why}. The input of "
            "those batches is lost to this graph. Restore the store from a backup that has them; or read the "
            f"events from the start with a new store and a new checkpoint.{perhaps}"
        )

    # ------------------------------------------------------------------ as Parquet

    def _to_parquet(self, entry: LogEntry, meta: EntryMeta) -> pa.Buffer:
        n, events = len(entry), entry.events
        if entry.arrival is not None:
            events = replace(events, arrival=entry.arrival)
        table = events.to_arrow()
        given: dict[str, Any] = dict(zip(table.column_names, table.columns, strict=True))
        given["batch"] = pa.array(np.full(n, meta.batch, np.int64))
        given["row"] = pa.array(np.arange(n, dtype=np.int32))
        given["part"] = pa.array(entry.part, pa.int32())
        # A column of keys of the other type is not used by any event in the entry: such are dead letters.
        for name in ("src", "dst", "key"):
            if name in given and given[name].type != self._schema.field(name).type:
                if n and name == "src":
                    raise TypeError(
                        f"batch {meta.batch} has ids of the type {given[name].type}, but the store "
                        f"{self.store.uri} is for ids of the type {self._schema.field(name).type}"
                    )
                del given[name]
        columns = [given[f.name] if f.name in given else pa.nulls(n, f.type) for f in self._schema]
        about = {"format": _FORMAT, **asdict(meta)}
        metadata = {_PREFIX + name.encode(): str(value).encode() for name, value in about.items()}
        sink = pa.BufferOutputStream()
        pq.write_table(
            pa.table(columns, schema=self._schema.with_metadata(metadata)),
            sink,
            compression={f.name: "zstd" for f in self._schema if f.name != "value"} | {_VALUES: "none"},
            use_dictionary=_FEW,
            column_encoding=dict.fromkeys(_CLOSE, "DELTA_BINARY_PACKED"),
        )
        return sink.getvalue()

    def _read(self, path: str, batch: int) -> tuple[LogEntry, EntryMeta] | None:
        data = self.store.read(path)
        if data is None:
            return None
        with self._open(path, batch, pa.BufferReader(data)) as file:
            table, meta = file.read(), _meta(file)
        given = [name for name in table.column_names if not 0 < len(table) == table[name].null_count]
        events = replace(EventBatch.from_arrow(table.select(given)), origin=None)
        return LogEntry(events, np.asarray(table["part"], np.int32)), meta

    def _open(self, path: str, batch: int, source: Any) -> pq.ParquetFile:
        try:
            file = pq.ParquetFile(source)
            about = file.schema_arrow.metadata
            found = int(about[_PREFIX + b"format"]), int(about[_PREFIX + b"batch"])
        except (pa.ArrowInvalid, KeyError, TypeError) as error:
            raise StoreError(
                f"{path} in the store {self.store.uri} is damaged, or no entry of a graph log ({error}). "
                "Restore it from a backup."
            ) from error
        if found != (_FORMAT, batch):
            raise StoreError(
                f"{path} in the store {self.store.uri} is of batch {found[1]}, format {found[0]}; expected "
                f"are batch {batch}, format {_FORMAT}"
            )
        return file


def input_hash(events: EventBatch) -> int:
    """64 bits over all columns of all rows, whatever their order: the sum of a hash of each row.

    A null counts as nothing, so a column of nulls and no column are the same.

    >>> one, other = EventBatch.edges([1, 2], [3, 4]), EventBatch.edges([2, 1], [4, 3])
    >>> input_hash(one) == input_hash(other), input_hash(one) == input_hash(EventBatch.edges([1, 2], [4, 3]))
    (True, False)
    """
    rows = np.zeros(len(events), np.uint64)
    _add_ints(rows, 0, events.op.astype(np.int64) * 256 + events.element)
    for column, keys in enumerate((events.src, events.dst, events.key), start=1):
        if keys is not None:
            # Numbers and their digits as text are not the same.
            _add(rows, column if isinstance(keys, IntKeys) else -column, hash_keys(keys), keys.valid)
    for column, times in enumerate((events.time, events.arrival, events.partition, events.offset), start=4):
        if times is not None:
            _add_ints(rows, column, times, times != NO_TIME)
    if events.feature is not None:
        names = hash_keys(keys_of([*events.names, ""]))
        _add(rows, 8, names[events.feature], events.feature >= 0)
    if events.values is not None and events.value_offsets is not None:
        bits = np.ascontiguousarray(events.values, np.float32).view(np.uint32)
        _add_values(rows, _salt(9), bits, events.value_offsets)
    return int(_total(rows))


def _salt(column: int) -> np.uint64:
    """What keeps the hashes of different columns apart."""
    return np.uint64((column * 0xD6E8FEB86659FD93 + 0x2545F4914F6CDD1D) % 2**64)


def _add(rows: Hashes, column: int, hashes: Hashes, valid: Bools | None = None) -> None:
    _add_hashes(rows, _salt(column), hashes, np.zeros(0, np.bool_) if valid is None else valid)


def _add_ints(rows: Hashes, column: int, values: Ints, valid: Bools | None = None) -> None:
    hashes = np.empty(len(values), np.uint64)
    hash_ints(values, hashes)
    _add(rows, column, hashes, valid)


@compiled
def _add_hashes(rows: Hashes, salt: np.uint64, hashes: Hashes, valid: Bools) -> None:
    for i in range(len(rows)):
        if len(valid) == 0 or valid[i]:
            rows[i] += mix(hashes[i] ^ salt)


@compiled
def _add_values(rows: Hashes, salt: np.uint64, bits: Array, offsets: Ints) -> None:
    for i in range(len(rows)):
        begin, end = offsets[i], offsets[i + 1]
        if end > begin:
            h = mix(np.uint64(end - begin) ^ salt)
            for j in range(begin, end):
                h = mix(h ^ np.uint64(bits[j]))
            rows[i] += h


@compiled
def _total(rows: Hashes) -> np.uint64:
    total = np.uint64(0)
    for row in rows:
        total += mix(row)
    return total


def _schema(store: Store) -> pa.Schema:
    """The columns of every entry of a store: one schema, so that the folder is one table."""
    types = {}
    for name in ("ids", "keys"):
        said = store.settings.get(name)
        if said not in _KEY_TYPES:
            raise StoreError(
                f"the settings of the store {store.uri} have {name}={said!r}: 'int' or 'string', please"
            )
        types[name] = _KEY_TYPES[said]
    return pa.schema(
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
        }
    )


def _entry_path(batch: int) -> str:
    return f"{_LOG}/{batch:012d}.parquet"


def _snapshot_path(batch: int) -> str:
    return f"{_SNAPSHOTS}/{batch:012d}.parquet"


def _meta(file: pq.ParquetFile) -> EntryMeta:
    about = file.schema_arrow.metadata
    # An entry of an earlier version lacks what it did not know of.
    given = {f.name: about.get(_PREFIX + f.name.encode()) for f in fields(EntryMeta)}
    return EntryMeta(**{name: int(value) for name, value in given.items() if value is not None})


def _ranges(batches: Sequence[int]) -> str:
    """Batches by number: `batch 3`, `batches 3 to 5 and 9`."""
    runs: list[list[int]] = []
    for batch in batches:
        if runs and batch == runs[-1][-1] + 1:
            runs[-1][1:] = [batch]
        else:
            runs.append([batch])
    said = [" to ".join(map(str, run)) for run in runs]
    text = said[0] if len(said) == 1 else f"{', '.join(said[:-1])} and {said[-1]}"
    return f"{'batch' if len(batches) == 1 else 'batches'} {text}"
