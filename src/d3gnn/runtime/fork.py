"""A new store from an old one: the same graph, with other parts, features or edges."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from d3gnn.events import GraphSchema, Reason
from d3gnn.events.event import NO_TIME
from d3gnn.kernel.evolution import Evolution, Fill, Repartition, SchemaChangeRefused, for_streaming
from d3gnn.kernel.log import LogEntry
from d3gnn.kernel.operators import Partition
from d3gnn.kernel.partitioners import Partitioner
from d3gnn.runtime.store_settings import store_settings
from d3gnn.store.entry import EntryMeta
from d3gnn.store.graph_log import NO_ENTRY, GraphLog, open_store
from d3gnn.store.sealed_json import to_json
from d3gnn.store.store import FORK, Store, StoreError

__all__ = ["Forked", "Progress", "fork", "replication_factor"]

#: Called with the events that are done, and with all.
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Forked:
    """What a fork has written."""

    store: str
    #: The old store, and the batch after which its graph was taken.
    source: str
    batch: int
    #: Entries of the new log, and their events.
    entries: int
    events: int
    vertices: int
    #: Vertices that lack a feature of the new schema.
    lacking: int
    #: Events of the old log that change nothing in the new graph, by the reason.
    skipped: Mapping[str, int]


def fork(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    name: str,
    parts: int,
    partitioner: Partitioner,
    schema: GraphSchema,
    batch: int | None = None,
    history: bool = False,
    fill: Fill | None = None,
    means: bool = False,
    progress: Progress | None = None,
) -> Forked:
    """Write a new store with the graph of an old one, which is only read.

    source:
        Checkpoint or store of the old pipeline, which may run.
    batch:
        The batch after which the graph is taken; the newest unless given.
    history:
        Write every entry of the old log, instead of one with the graph.
    fill:
        The new numbers of widened features; see `Evolution`.
    means:
        Set `missing` of the schema to the mean of each feature over the vertices that have it.

    Events keep their times, so that older events stay late. The new store has no settings before its log is
    complete: what an interrupted fork leaves is refused.
    """
    old = open_store(source)
    log = GraphLog(old)
    batch = log.last() if batch is None else batch
    if batch is None:
        raise StoreError(f"the log in {old.uri} is empty: there is nothing to fork")
    _meta(log, batch)
    evolution = Evolution(GraphSchema(**old.settings["schema"]), schema, fill)
    if history and not evolution.keeps_history:
        raise SchemaChangeRefused(
            "history=True needs the same edge mode and direction: under others, the deletes of the history "
            "would delete other edges. Fork the graph without its history"
        )
    new = Store(target)
    if files := [*new.list(""), *new.list("log")]:
        raise StoreError(f"the folder {new.uri} is not empty ({files[0]}): fork into a new one")
    settings = store_settings(name, parts, partitioner, schema, old.settings["ids"], old.settings["keys"])
    new.assume(settings)
    writer = _Writer(GraphLog(new), Repartition(evolution, parts, partitioner))
    try:
        writer.write(log, batch, history, progress)
        if means:
            schema = replace(schema, missing=writer.log.feature_means())
            settings["schema"] = schema.to_dict(limits=False)
        origin = {"store": old.uri, "batch": batch, "history": history, "entries": writer.entries}
        new.create(FORK, to_json(origin))
        new.write_settings(settings)
    except BaseException:
        with suppress(OSError):
            writer.undo()
        raise
    made = writer.repartition
    return Forked(
        new.uri,
        old.uri,
        batch,
        writer.entries,
        writer.events,
        made.vertices,
        made.lacking,
        dict(made.skipped),
    )


def replication_factor(source: str | os.PathLike[str], batch: int | None = None) -> float:
    """Replicas per vertex of the graph in a store after a batch (the newest, unless given)."""
    store = open_store(source)
    partition = Partition(GraphSchema(**store.settings["schema"]), store.settings["parts"], "random")
    for entry in GraphLog(store).entries(batch):
        partition.process(entry.events, 0, replay=entry.part)
    return partition.replication_factor


class _Writer:
    """Writes the log of a new store."""

    def __init__(self, log: GraphLog, repartition: Repartition) -> None:
        self.log, self.repartition = log, repartition
        self.entries = self.events = 0

    def write(self, old: GraphLog, batch: int, history: bool, progress: Progress | None) -> None:
        found = self._history(old, batch) if history else [self._graph(old, batch)]
        done, total = 0, sum(len(entry) for entry, _ in found)

        def report(events: int) -> None:
            nonlocal done
            done += events
            if progress is not None:
                progress(done, total)

        for entry, meta in found:
            watermark = meta.watermark if self.repartition.expires else NO_TIME
            made = self.repartition.entry(entry, meta.clock, report)
            written = EntryMeta.of(
                self.entries, made.events, np.full(len(made), Reason.APPLIED, np.int8), clock=meta.clock,
                newest_event=meta.newest_event, watermark=watermark,
            )  # fmt: skip
            if not self.log.create(self.entries, made, written):
                raise StoreError(f"another process forks into {self.log.store.uri} at the same time")
            self.entries += 1
            self.events += len(made)

    def undo(self) -> None:
        """Delete what was written."""
        store = self.log.store
        for name in store.list("log"):
            store.delete(f"log/{name}")
        store.delete(FORK)

    def _graph(self, old: GraphLog, batch: int) -> tuple[LogEntry, EntryMeta]:
        return for_streaming(old.snapshot(batch) or NO_ENTRY), _meta(old, batch)

    def _history(self, old: GraphLog, batch: int) -> list[tuple[LogEntry, EntryMeta]]:
        """All entries; behind the graph before them, if the first ones were deleted."""
        numbers = old.batches(batch)
        found = []
        if numbers and numbers[0] > 0 and (first := old.snapshot(numbers[0])) is not None:
            found = [(for_streaming(first), _meta(old, numbers[0]))]
            numbers = numbers[1:]
        if numbers != list(range(batch + 1 - len(numbers), batch + 1)):
            raise StoreError(
                f"entries are missing in the log of {old.store.uri}: fork it without its history"
            )
        for number in numbers:
            read = old.read(number)
            if read is not None:
                found.append(read)
        return found


def _meta(log: GraphLog, batch: int) -> EntryMeta:
    meta = log.meta(batch)
    if meta is None:
        raise StoreError(
            f"the log in {log.store.uri} has no entry for batch {batch}; its newest is {log.last()}"
        )
    return meta
