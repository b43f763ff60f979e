"""The graph log: for each batch the events that changed the graph, as Parquet files in a store."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from d3gnn.events import EventBatch, GraphSchema
from d3gnn.kernel.compaction import compact, without_deletes
from d3gnn.kernel.log import LogEntry
from d3gnn.store.entry import EntryFormat, EntryMeta
from d3gnn.store.input_hash import input_hash
from d3gnn.store.store import SETTINGS, STORE, Store, StoreError

__all__ = ["GraphLog", "LogGap", "ReplayMismatch"]

_LOG, _SNAPSHOTS = "log", "snapshots"


class LogGap(StoreError):
    """Entries of the log are missing: input is lost."""


class ReplayMismatch(StoreError):
    """A replayed batch has other rows than before."""


class GraphLog:
    """The history of a pipeline's graph: an entry per batch, and snapshots that replace all entries before
    them.

    `GraphLog.open(path)` opens the log of a pipeline, which may be running: `history` is the log as a table,
    `graph` the graph after any batch, `meta` describes a batch.

    A pipeline opens it from a store, whose settings hold the types of ids and edge keys, the schema and the
    number of parts.

    >>> import tempfile
    >>> from d3gnn.kernel.operators import Partition
    >>> store, schema = Store(tempfile.mkdtemp()), GraphSchema()
    >>> store.fix({"ids": "int", "keys": "int", "parts": 2, "schema": schema.to_dict()})
    >>> log, batch = GraphLog(store), EventBatch.edges([1, 2, 1], [2, 3, 2])
    >>> result = Partition(schema, parts=2).process(batch, clock=0)
    >>> log.create(0, result.entry, EntryMeta.of(0, batch, result.status))
    True
    >>> entry, meta = log.read(0)
    >>> len(entry), meta.rows, meta.repeated
    (2, 3, 1)
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._format = EntryFormat(store.uri, store.settings)
        self._last: int | None = None

    @staticmethod
    def open(path: str | os.PathLike[str]) -> GraphLog:
        """The log of a pipeline, from its store or its checkpoint."""
        return GraphLog(open_store(path))

    def __repr__(self) -> str:
        return f"GraphLog({self.store!r})"

    # ------------------------------------------------------------------ to look at

    def last(self) -> int | None:
        """The newest batch that has an entry; None for an empty log."""
        if self._last is None or not self.store.exists(_entry_path(self._last)):
            batches = self._batches(_LOG)
            self._last = batches[-1] if batches else None
        if self._last is not None:
            while self.store.exists(_entry_path(self._last + 1)):
                self._last += 1
        return self._last

    def meta(self, batch: int) -> EntryMeta | None:
        """The metadata of a batch, without its events; None if it has no entry."""
        path = _entry_path(batch)
        try:
            source = self.store.open_input(path)
        except FileNotFoundError:
            return None
        with source:
            return self._format.read_meta(path, batch, source)

    def history(self, first: int = 0, last: int | None = None) -> pa.Table:
        """The events of the batches from `first` to `last` (the newest, unless given), in the order in which
        they were applied.
        """
        last = self.last() if last is None else last
        batches = [batch for batch in self._batches(_LOG) if last is not None and first <= batch <= last]
        tables = []
        for batch in batches:
            read = self.read(batch)
            if read is not None:
                tables.append(self._format.table(batch, read[0]))
        return pa.concat_tables(tables) if tables else self._format.schema.empty_table()

    def graph(self, batch: int | None = None) -> pa.Table:
        """The graph after a batch (the newest, unless given), as the shortest list of events that creates it:
        vertices, their features and labels, edges.
        """
        snapshot = without_deletes(self.snapshot(batch) or _NO_ENTRY)
        names = [name for name in self._format.schema.names if name not in ("batch", "row")]
        return self._format.table(0, snapshot).select(names)

    def compact(self, batch: int | None = None, *, forget_history: bool = False) -> None:
        """Write a snapshot of the graph after a batch (the newest, unless given): a rebuild begins there.

        Entries stay, as history; with `forget_history`, those before the batch are deleted. The entry of the
        batch itself always stays, since the batch may be replayed.
        """
        upto = self.last() if batch is None else batch
        if upto is None:
            return
        if self._snapshot_before(upto) != upto:
            meta = self.meta(upto)
            snapshot = self.snapshot(upto) or _NO_ENTRY
            if meta is None:
                raise self._gap([upto], f"a snapshot of batch {upto} needs it")
            self.store.create(_snapshot_path(upto), self._format.to_parquet(snapshot, meta))
        # If batch `upto` is replayed, the graph before it is needed, too: for what the batch deletes.
        before = self._snapshot_before(upto - 1)
        for older in self._batches(_SNAPSHOTS):
            if older < upto and (forget_history or older != before):
                self.store.delete(_snapshot_path(older))
        if forget_history:
            for older in self._batches(_LOG):
                if older < upto:
                    self.store.delete(_entry_path(older))

    def rewrite(self, last: int, graph: LogEntry | None, before: LogEntry | None, entry: LogEntry) -> None:
        """Replace the log, whose newest batch is `last`, for a stopped pipeline.

        `graph` is the graph after that batch, `before` the graph before it, if it is known: they become
        snapshots. `entry` is the batch, which keeps its metadata. Everything else is deleted.
        """
        meta = self.meta(last)
        if meta is None:
            raise self._gap([last], "it is to be replaced")
        kept = [last]
        self.store.replace(_snapshot_path(last), self._format.to_parquet(graph or _NO_ENTRY, meta))
        if before is not None:
            kept.append(last - 1)
            older = EntryMeta(last - 1, rows=0, input_hash=0)
            self.store.replace(_snapshot_path(last - 1), self._format.to_parquet(before, older))
        self.store.replace(_entry_path(last), self._format.to_parquet(entry, meta))
        for batch in self._batches(_SNAPSHOTS):
            if batch not in kept:
                self.store.delete(_snapshot_path(batch))
        for batch in self._batches(_LOG):
            if batch != last:
                self.store.delete(_entry_path(batch))

    # ------------------------------------------------------------------ for the pipeline

    def create(self, batch: int, entry: LogEntry, meta: EntryMeta) -> bool:
        """Write entry `batch`; False if another process has written it, whose entry counts."""
        if meta.batch != batch:
            raise ValueError(f"the entry of batch {batch} has the metadata of batch {meta.batch}")
        return self.store.create(_entry_path(batch), self._format.to_parquet(entry, meta))

    def read(self, batch: int) -> tuple[LogEntry, EntryMeta] | None:
        """Entry `batch`; None if there is none. Its events have the arrival that the pipeline gave them."""
        return self._read(_entry_path(batch), batch)

    def check_next(self, batch: int) -> None:
        """Check that every batch before this one has its entry; raises `LogGap` if not."""
        if batch == 0 and not self.store.exists(_entry_path(0)) and self.last() is not None:
            raise self._gap(
                [0], "it comes next, and later batches have one: the checkpoint is older than that"
            )
        if batch == 0 or self.store.exists(_entry_path(batch - 1)):
            return
        last = self.last()
        first = 0 if last is None else last + 1
        if batch > first:
            raise self._gap(
                range(first, batch),
                f"batch {batch} comes next",
                " A possible cause: a foreachBatch callback that ran no action on them while adaptive "
                "execution was off, so that no operator received them.",
            )

    def same_input(self, meta: EntryMeta, events: EventBatch) -> None:
        """Check that a replayed batch has the rows that were logged; raises `ReplayMismatch` if not."""
        if len(events) == meta.rows and input_hash(events) == meta.input_hash:
            return
        rows = "other rows" if len(events) == meta.rows else f"{len(events):,} rows"
        raise ReplayMismatch(
            f"the source returned other rows for batch {meta.batch} than before: {rows}, where there were "
            f"{meta.rows:,} when the batch was logged in {self.store.uri}. None of them was applied. A "
            "source must return the same rows for the same offsets: look for changed or removed files, "
            "expired records, columns that are computed again each time (random numbers, time of day)."
        )

    def entries(self, upto: int | None = None) -> list[LogEntry]:
        """The log of the graph after batch `upto` (the newest unless given), in order: the newest snapshot up
        to there, if there is one, and the entries after it, without empty ones.
        """
        upto = self.last() if upto is None else upto
        if upto is None:
            return []
        while True:
            snapshot = self._snapshot_before(upto)
            try:
                return self._entries(snapshot, upto)
            except LogGap:
                # A newer snapshot may have just replaced what is missing.
                if self._snapshot_before(upto) == snapshot:
                    raise

    def snapshot(self, upto: int | None = None) -> LogEntry | None:
        """The shortest log of the graph after batch `upto` (the newest unless given); None for an empty
        graph.
        """
        settings = self.store.settings
        return compact(self.entries(upto), GraphSchema(**settings["schema"]), settings["parts"])

    def _batches(self, folder: str) -> list[int]:
        return [int(name.partition(".")[0]) for name in self.store.list(folder)]

    def _snapshot_before(self, upto: int) -> int | None:
        """The batch of the newest snapshot up to this batch."""
        return max((batch for batch in self._batches(_SNAPSHOTS) if batch <= upto), default=None)

    def _read(self, path: str, batch: int) -> tuple[LogEntry, EntryMeta] | None:
        data = self.store.read(path)
        return None if data is None else self._format.read(path, batch, data)

    def _entries(self, snapshot: int | None, upto: int) -> list[LogEntry]:
        entries: list[LogEntry] = []
        missing: list[int] = []
        if snapshot is not None:
            read = self._read(_snapshot_path(snapshot), snapshot)
            if read is None:
                raise self._gap([snapshot], f"the graph after batch {upto} needs it")
            entries.append(read[0])
        first = 0 if snapshot is None else snapshot + 1
        for batch in range(first, upto + 1):
            read = self.read(batch)
            if read is None:
                missing.append(batch)
            elif not missing:
                entries.append(read[0])
        if missing:
            raise self._gap(missing, f"the graph after batch {upto} needs them")
        return [entry for entry in entries if len(entry)]

    def _gap(self, missing: Sequence[int], why: str, cause: str = "") -> LogGap:
        return LogGap(
            f"the graph log in {self.store.uri} has no entry for {_ranges(missing)}, but {why}. The input of "
            "those batches is lost to this graph. Restore the store from a backup that has them; or read the "
            f"events from the start with a new store and a new checkpoint.{cause}"
        )


def open_store(path: str | os.PathLike[str]) -> Store:
    """The store of a pipeline, from its own folder or from the checkpoint that it is in."""
    folder = os.fspath(path)
    for candidate in (folder, f"{folder.rstrip('/')}/{STORE}"):
        store = Store(candidate)
        if store.exists(SETTINGS):
            return store
    raise FileNotFoundError(f"{folder} is neither a checkpoint of a d3gnn pipeline nor the store of one")


_NO_ENTRY = LogEntry(EventBatch.of([]), np.zeros(0, np.int32))


def _entry_path(batch: int) -> str:
    return f"{_LOG}/{batch:012d}.parquet"


def _snapshot_path(batch: int) -> str:
    return f"{_SNAPSHOTS}/{batch:012d}.parquet"


def _ranges(batches: Sequence[int]) -> str:
    """Batches by number: `batch 3`, `batches 3 to 5 and 9`."""
    runs: list[list[int]] = []
    for batch in batches:
        if runs and batch == runs[-1][-1] + 1:
            runs[-1][1:] = [batch]
        else:
            runs.append([batch])
    names = [" to ".join(map(str, run)) for run in runs]
    text = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    return f"{'batch' if len(batches) == 1 else 'batches'} {text}"
