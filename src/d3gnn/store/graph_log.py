"""The graph log: for each batch the events that changed the graph, as Parquet files in a store."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from d3gnn.events import EventBatch, GraphSchema
from d3gnn.kernel.compaction import compact, feature_means, without_deletes
from d3gnn.kernel.log import LogEntry
from d3gnn.store.entry import EntryFormat, EntryMeta
from d3gnn.store.gaps import LogGap
from d3gnn.store.input_hash import input_hash
from d3gnn.store.names import LOG, SNAPSHOTS, batches_in, entry_path, snapshot_path
from d3gnn.store.seal import Kind, Seal, digest_of
from d3gnn.store.store import SETTINGS, STORE, Store, StoreDamaged, StoreError

__all__ = ["GraphLog", "LogGap", "ReplayMismatch"]

#: An entry without events.
NO_ENTRY = LogEntry(EventBatch.of([]), np.zeros(0, np.int32))


class ReplayMismatch(StoreError):
    """A replayed batch has other rows than before."""


class _Head(NamedTuple):
    """An entry that was written or read, and its digest."""

    batch: int
    digest: bytes


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
        self.format = EntryFormat(store.uri, store.settings)
        self._last: int | None = None
        self._head: _Head | None = None
        self._end_seen = False

    @staticmethod
    def open(path: str | os.PathLike[str]) -> GraphLog:
        """The log of a pipeline, from its store or its checkpoint."""
        return GraphLog(open_store(path))

    def __repr__(self) -> str:
        return f"GraphLog({self.store!r})"

    # ------------------------------------------------------------------ to look at

    def last(self) -> int | None:
        """The newest batch that has an entry; None for an empty log."""
        if self._last is None or not self.store.exists(entry_path(self._last)):
            batches = batches_in(self.store, LOG)
            self._last = batches[-1] if batches else None
        if self._last is not None:
            while self.store.exists(entry_path(self._last + 1)):
                self._last += 1
        return self._last

    def meta(self, batch: int) -> EntryMeta | None:
        """The metadata of a batch, without its events; None if it has no entry."""
        read = self._read_meta(batch)
        return None if read is None else read[0]

    def history(self, first: int = 0, last: int | None = None) -> pa.Table:
        """The events of the batches from `first` to `last` (the newest, unless given), in the order in which
        they were applied.
        """
        last = self.last() if last is None else last
        batches = [
            batch for batch in batches_in(self.store, LOG) if last is not None and first <= batch <= last
        ]
        tables = []
        for batch in batches:
            read = self.read(batch)
            if read is not None:
                tables.append(self.format.table(batch, read[0]))
        return pa.concat_tables(tables) if tables else self.format.schema.empty_table()

    def graph(self, batch: int | None = None) -> pa.Table:
        """The graph after a batch (the newest, unless given), as the shortest list of events that creates it:
        vertices, their features and labels, edges.
        """
        snapshot = without_deletes(self.snapshot(batch) or NO_ENTRY)
        names = [name for name in self.format.schema.names if name not in ("batch", "row")]
        return self.format.table(0, snapshot).select(names)

    def feature_means(self, batch: int | None = None) -> dict[str, tuple[float, ...]]:
        """The mean of each vertex feature after a batch (the newest, unless given), over the vertices that
        have it: for `GraphSchema(missing=...)`. Features that no vertex has are left out.
        """
        return feature_means(self.snapshot(batch) or NO_ENTRY, GraphSchema(**self.store.settings["schema"]))

    def batches(self, last: int) -> list[int]:
        """The batches up to this one that have an entry."""
        return [batch for batch in batches_in(self.store, LOG) if batch <= last]

    def compact(
        self, batch: int | None = None, *, forget_history: bool = False, graph: LogEntry | None = None
    ) -> None:
        """Write a snapshot of the graph after a batch (the newest, unless given): a rebuild begins there.

        Entries stay, as history; with `forget_history`, those before the batch are deleted. The entry of the
        batch itself always stays, since the batch may be replayed. `graph` is the snapshot, if known.
        """
        upto = self.last() if batch is None else batch
        if upto is None:
            return
        if self._snapshot_before(upto) != upto:
            read = self._read_meta(upto)
            snapshot = graph or self.snapshot(upto) or NO_ENTRY
            if read is None:
                raise self._gap([upto], f"a snapshot of batch {upto} needs it")
            pieces, _ = self.format.write(Kind.SNAPSHOT, snapshot, read[0], read[1].digest)
            self.store.create(snapshot_path(upto), *pieces)
        # If batch `upto` is replayed, the graph before it is needed, too: for what the batch deletes.
        before = self._snapshot_before(upto - 1)
        for older in batches_in(self.store, SNAPSHOTS):
            if older < upto and (forget_history or older != before):
                self.store.delete(snapshot_path(older))
        if forget_history:
            for older in batches_in(self.store, LOG):
                if older < upto:
                    self.store.delete(entry_path(older))

    # ------------------------------------------------------------------ for the pipeline

    def create(self, batch: int, entry: LogEntry, meta: EntryMeta) -> bool:
        """Write entry `batch`; False if another process has written it, whose entry counts.

        Its checksum includes that of the entry before it. In a log without entries, a chain begins.
        """
        if meta.batch != batch:
            raise ValueError(f"the entry of batch {batch} has the metadata of batch {meta.batch}")
        previous = self.digest(batch - 1)
        if previous is None:
            if self.last() is not None:
                raise self._gap([batch - 1], f"the entry of batch {batch} follows it")
            previous = self.origin(batch)
        pieces, digest = self.format.write(Kind.ENTRY, entry, meta, previous)
        created = self.store.create(entry_path(batch), *pieces)
        if created:
            self._head = _Head(batch, digest)
        return created

    def read(self, batch: int) -> tuple[LogEntry, EntryMeta] | None:
        """Entry `batch`; None if there is none. Its events have the arrival that the pipeline gave them."""
        read = self._read(entry_path(batch), batch)
        if read is None:
            return None
        entry, meta, found = read
        self.check_link(batch, found, self.digest(batch - 1))
        self._head = _Head(batch, found.digest)
        return entry, meta

    def digest(self, batch: int) -> bytes | None:
        """The checksum of entry `batch` and of all entries before it; None if there is no such entry.

        Two logs with the same digest have the same content up to there.
        """
        if batch < 0:
            return self.origin(0)
        if self._head is None or self._head.batch != batch:
            read = self._read_meta(batch)
            if read is None:
                return None
            self._head = _Head(batch, read[1].digest)
        return self._head.digest

    def origin(self, batch: int) -> bytes:
        """What stands for the entry before a chain that begins with this batch. Each store has its own."""
        return digest_of(b"d3gnn", self.store.id.encode(), str(batch).encode())

    def check_link(self, batch: int, found: Seal, previous: bytes | None) -> None:
        """Check that an entry follows the one before it, whose digest this is, if it is known."""
        if previous is not None and found.previous not in (previous, self.origin(batch)):
            problem = (
                f"it does not follow the entry of batch {batch - 1}, {entry_path(batch - 1)}: one of the two "
                "is from another history of the store, such as an older backup"
                if batch
                else "it is the first entry of another store"
            )
            raise StoreDamaged.of(entry_path(batch), self.store.uri, problem)

    def is_linked(self, batch: int, snapshot: Seal, entry: bytes | None) -> bool:
        """Whether a snapshot belongs to the entry of its batch, whose digest this is, if it is known."""
        return entry is None or snapshot.previous in (entry, self.origin(batch))

    def read_sealed(self, batch: int) -> Seal | None:
        """The seal of entry `batch`, whose whole content is read and checked; None if there is none."""
        read = self._read(entry_path(batch), batch)
        return None if read is None else read[2]

    def read_snapshot(self, batch: int) -> tuple[LogEntry, Seal] | None:
        """The snapshot of the graph after a batch; None if there is none."""
        read = self._read(snapshot_path(batch), batch)
        return None if read is None else (read[0], read[2])

    def look_again(self) -> None:
        """Forget what is known of the files: another process may have changed them since."""
        self._head, self._last, self._end_seen = None, None, False

    def drop_after(self, batch: int) -> None:
        """Delete the entries and snapshots after a batch, the newest first, so that no gap is ever left."""
        for folder, path in ((SNAPSHOTS, snapshot_path), (LOG, entry_path)):
            for later in reversed(batches_in(self.store, folder)):
                if later > batch:
                    self.store.delete(path(later))
        self.look_again()

    def check_new(self, batch: int) -> None:
        """Check that a batch without an entry is the one that comes next; raises `LogGap` if not."""
        self.check_next(batch)
        if not self._end_seen:
            # Once: the entries that follow are written by this process, or linked to its own.
            if self.store.exists(entry_path(batch + 1)):
                raise self._gap([batch], f"batch {batch + 1} has one")
            self._end_seen = True

    def check_next(self, batch: int) -> None:
        """Check that every batch before this one has its entry; raises `LogGap` if not."""
        if batch == 0 and not self.store.exists(entry_path(0)) and self.last() is not None:
            raise self._gap(
                [0], "it comes next, and later batches have one: the checkpoint is older than that"
            )
        if batch == 0 or self.store.exists(entry_path(batch - 1)):
            return
        last = self.last()
        first = 0 if last is None else last + 1
        if batch > first:
            raise self._gap(
                range(first, batch),
                f"batch {batch} comes next",
                " A possible cause: a foreachBatch callback that ran no action on them while adaptive "
                "execution was off, so that no operator received them; or a sink that skipped them, since "
                "its table is newer than the checkpoint.",
            )

    def is_replay(self, meta: EntryMeta, events: EventBatch) -> bool:
        """Whether this is the batch that was logged; raises `ReplayMismatch` if it has other rows.

        False if the batch was logged without any rows, as when Spark ran an empty task for it, and nothing
        after it has rows either: the empty entries are dropped then, and the batch is a new one.
        """
        if meta.rows == 0 and len(events) and self._drop_empty(meta.batch):
            return False
        self.same_input(meta, events)
        return True

    def same_input(self, meta: EntryMeta, events: EventBatch) -> None:
        """Check that a replayed batch has the rows that were logged; raises `ReplayMismatch` if not."""
        if len(events) == meta.rows and input_hash(events) == meta.input_hash:
            return
        rows = "other rows" if len(events) == meta.rows else f"{len(events):,} rows"
        before = meta.batch - 1
        ahead = (
            " Or the log is ahead of the checkpoint, as after the checkpoint was restored from a backup: "
            f"restore a newer one, or cut the log back with `d3gnn repair --last-batch {before}`, and the "
            "pipeline reads the events after it again."
        )
        raise ReplayMismatch(
            f"the source returned other rows for batch {meta.batch} than before: {rows}, where there were "
            f"{meta.rows:,} when the batch was logged, in {entry_path(meta.batch)} in {self.store.uri}. None "
            "of them was applied. A source must return the same rows for the same offsets: look for changed "
            "or removed files, expired records, columns that are computed again each time (random numbers, "
            f"time of day).{ahead if meta.batch else ''}"
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

    def _snapshot_before(self, upto: int) -> int | None:
        """The batch of the newest snapshot up to this batch."""
        return max((batch for batch in batches_in(self.store, SNAPSHOTS) if batch <= upto), default=None)

    def _drop_empty(self, batch: int) -> bool:
        """Drop the entries from this batch on, if none has an input and the graph before it is there."""
        metas = [self.meta(later) for later in batches_in(self.store, LOG) if later >= batch]
        if any(meta is None or meta.rows for meta in metas):
            return False
        if batch and self._snapshot_before(batch - 1) is None and not self.store.exists(entry_path(0)):
            return False
        self.drop_after(batch - 1)
        return True

    def _read(self, path: str, batch: int) -> tuple[LogEntry, EntryMeta, Seal] | None:
        data = self.store.read(path)
        kind = Kind.SNAPSHOT if path.startswith(SNAPSHOTS) else Kind.ENTRY
        return None if data is None else self.format.read(kind, path, batch, data)

    def _read_meta(self, batch: int) -> tuple[EntryMeta, Seal] | None:
        path = entry_path(batch)
        try:
            source = self.store.open_input(path)
        except FileNotFoundError:
            return None
        with source:
            return self.format.read_meta(Kind.ENTRY, path, batch, source)

    def _entries(self, snapshot: int | None, upto: int) -> list[LogEntry]:
        entries: list[LogEntry] = []
        missing: list[int] = []
        digest: bytes | None = self.origin(0)
        if snapshot is not None:
            read = self._read(snapshot_path(snapshot), snapshot)
            if read is None:
                raise self._gap([snapshot], f"the graph after batch {upto} needs it")
            entries.append(read[0])
            entry = self.digest(snapshot)
            # A snapshot at the beginning of a chain says nothing of the entry that it belongs to.
            digest = entry if read[2].previous == self.origin(snapshot) else read[2].previous
            if not self.is_linked(snapshot, read[2], entry):
                raise StoreDamaged.of(
                    snapshot_path(snapshot),
                    self.store.uri,
                    f"it is of another history of the store than {entry_path(snapshot)}",
                )
        first = 0 if snapshot is None else snapshot + 1
        for batch in range(first, upto + 1):
            read = self._read(entry_path(batch), batch)
            if read is None:
                missing.append(batch)
            elif not missing:
                self.check_link(batch, read[2], digest)
                digest = read[2].digest
                self._head = _Head(batch, digest)
                entries.append(read[0])
        if missing:
            raise self._gap(missing, f"the graph after batch {upto} needs them")
        return [entry for entry in entries if len(entry)]

    def _gap(self, missing: Sequence[int], why: str, cause: str = "") -> LogGap:
        return LogGap.of(self.store.uri, missing, why, cause)


def open_store(path: str | os.PathLike[str]) -> Store:
    """The store of a pipeline, from its own folder or from the checkpoint that it is in."""
    folder = os.fspath(path)
    for candidate in (folder, f"{folder.rstrip('/')}/{STORE}"):
        store = Store(candidate)
        if store.exists(SETTINGS):
            return store
    raise FileNotFoundError(
        f"{folder} is neither a checkpoint of a d3gnn pipeline nor the store of one: there is no {SETTINGS}"
    )
