"""Erasure of vertices from a store, for good: from the log and its history, and from dead letters.

The pipeline must be stopped. Every step leaves a log that a rebuild can read, so that a crash in between does
no harm, and repeating all steps finishes the work:

1. A file in `erasures/` makes state on all hosts out of date: the next start rebuilds it from the log.
2. The snapshot of the newest batch is replaced by one without the vertices.
3. The snapshot of the batch before it is, and the entry of the newest batch, which Spark may replay. The
   entry keeps its metadata, by which a replay is recognised.
4. All other entries and snapshots are deleted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from d3gnn.events import Element, EventBatch, Op
from d3gnn.events.keys import keys_from_arrow
from d3gnn.kernel.log import LogEntry
from d3gnn.store.dead_letters import read_dead_letters, replace_dead_letters
from d3gnn.store.graph_log import GraphLog, LogGap
from d3gnn.store.named_ids import NamedIds
from d3gnn.store.names import DEAD_LETTERS, batches_in, dead_letters_path
from d3gnn.store.rewrite import rewrite
from d3gnn.store.sealed_json import to_json
from d3gnn.store.store import FORK, OFFSETS, OWNERS, QUERY, SETTINGS, Store
from d3gnn.types import Array, Bools

__all__ = [
    "ErasedGraph",
    "erase_from_dead_letters",
    "erase_from_log",
    "erasures",
    "mark_erasure",
    "search_store",
    "without_rows",
]

_ERASURES = "erasures"
#: Files and folders that hold no ids, by their first name. What they hold may look like one.
_WITHOUT_IDS = (
    SETTINGS, QUERY, OWNERS, OFFSETS, FORK, "arrays.txt", "runs", "models", "control", _ERASURES,
    "epochs", "timers", "next_expiry", "homes.txt",
)  # fmt: skip


class ErasedGraph(NamedTuple):
    """What the graph lost: vertices, and their edges."""

    vertices: int = 0
    edges: int = 0


def erasures(store: Store) -> int:
    """How often vertices were erased from a store. State that is older must not be used."""
    return len(store.list(_ERASURES))


def mark_erasure(store: Store, ids: NamedIds) -> None:
    """Record that an erasure begins, without the ids: all state that exists is out of date from now on."""
    marker = {"time": datetime.now(UTC).isoformat(timespec="seconds"), "ids": len(ids)}
    store.create(f"{_ERASURES}/{erasures(store) + 1:06d}.json", to_json(marker))


def search_store(store: Store, ids: NamedIds) -> Counter[str]:
    """The number of rows that name one of the ids, in each file that does.

    Searches the columns of ids of all Parquet files, with their dictionaries and statistics, and as text all
    other files but those whose content is known to be without ids.
    """
    found: Counter[str] = Counter()
    for path in store.walk():
        if path.endswith(".parquet"):
            with store.open_input(path) as file:
                found[path] = ids.in_parquet(file)
        elif path.split("/")[0] not in _WITHOUT_IDS:
            found[path] = int(ids.in_text(store.read(path) or b""))
    return +found


def erase_from_log(log: GraphLog, ids: NamedIds) -> ErasedGraph:
    """Delete vertices and their edges from the graph, and all history but the newest batch."""
    last = log.last()
    if last is None:
        return ErasedGraph()
    graph, read = log.snapshot(last), log.read(last)
    assert read is not None
    try:
        before = log.snapshot(last - 1) if last else None
    except LogGap:  # history was deleted before, and the graph before this batch with it
        before = None
    rewrite(
        log,
        last,
        graph and without_rows(graph, ids),
        before and without_rows(before, ids),
        _without_vertices(read[0], ids),
    )
    return ErasedGraph() if graph is None else _erased(graph, ids)


def erase_from_dead_letters(store: Store, ids: NamedIds) -> None:
    """Delete the dead letters that name one of the ids."""
    for batch in batches_in(store, DEAD_LETTERS):
        with store.open_input(dead_letters_path(batch)) as file:
            if not ids.in_parquet(file):
                continue
        table = read_dead_letters(store, batch)
        if table is not None:
            replace_dead_letters(store, batch, table.filter(pa.array(~ids.in_rows(table))))


def _named(events: EventBatch, ids: NamedIds) -> tuple[Bools, Bools]:
    """Whether the source, and the destination, of each event is one of the ids."""
    src = ids.in_column(events.src.to_arrow())
    if events.dst is None:
        return src, np.zeros(len(events), np.bool_)
    return src, ids.in_column(events.dst.to_arrow())


def _take(entry: LogEntry, rows: Array) -> LogEntry:
    events = entry.events if entry.arrival is None else replace(entry.events, arrival=entry.arrival)
    return LogEntry(events.take(rows), entry.part[rows])


def without_rows(entry: LogEntry, ids: NamedIds) -> LogEntry:
    """A snapshot, which creates each vertex in a row of its own, without what names the ids."""
    src, dst = _named(entry.events, ids)
    return _take(entry, np.flatnonzero(~(src | dst)))


def _without_vertices(entry: LogEntry, ids: NamedIds) -> LogEntry:
    """An entry without what names the ids. An edge may have created its other end: that end still is."""
    src, dst = _named(entry.events, ids)
    events = entry.events
    is_create = (events.element == Element.EDGE) & (events.op == Op.CREATE)
    kept, other = np.flatnonzero(~(src | dst)), np.flatnonzero(is_create & (src ^ dst))
    pieces = [_take(entry, kept)]
    if len(other):
        assert events.dst is not None
        edges = _take(entry, other)
        assert edges.events.dst is not None
        ends = pa.concat_arrays([edges.events.src.to_arrow(), edges.events.dst.to_arrow()])
        is_dst = src[other]  # the end that stays
        end = ends.take(pa.array(np.arange(len(other)) + np.where(is_dst, len(other), 0)))
        vertices = replace(
            edges.events, element=np.full(len(other), Element.VERTEX, np.int8), src=keys_from_arrow(end),
            dst=None, key=None, feature=None, names=(), values=None, value_offsets=None,
        )  # fmt: skip
        pieces.append(LogEntry(vertices, edges.part))
    whole = LogEntry.concat(pieces)
    return _take(whole, np.argsort(np.concatenate([kept, other]), kind="stable"))


def _erased(graph: LogEntry, ids: NamedIds) -> ErasedGraph:
    src, dst = _named(graph.events, ids)
    create = graph.events.op == Op.CREATE
    vertices = create & (graph.events.element == Element.VERTEX) & src
    edges = create & (graph.events.element == Element.EDGE) & (src | dst)
    return ErasedGraph(int(vertices.sum()), int(edges.sum()))
