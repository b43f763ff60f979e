"""Replace a log by a graph: its history is deleted, and a new chain begins."""

from __future__ import annotations

from d3gnn.kernel.log import LogEntry
from d3gnn.store.entry import EntryMeta
from d3gnn.store.gaps import LogGap
from d3gnn.store.graph_log import NO_ENTRY, GraphLog
from d3gnn.store.names import LOG, SNAPSHOTS, batches_in, entry_path, snapshot_path
from d3gnn.store.seal import Kind


def rewrite(
    log: GraphLog, last: int, graph: LogEntry | None, before: LogEntry | None, entry: LogEntry
) -> None:
    """Replace the log of a stopped pipeline, whose newest batch is `last`.

    `graph` is the graph after that batch, `before` the graph before it, if it is known: they become
    snapshots. `entry` is the batch, which keeps its metadata. Everything else is deleted. After every step,
    the log can be read: snapshots at the beginning of a chain are valid beside the old entry and the new one.
    """
    store, meta = log.store, log.meta(last)
    if meta is None:
        raise LogGap.of(store.uri, [last], "it is to be replaced")

    def write(kind: Kind, path: str, content: LogEntry, meta: EntryMeta) -> None:
        pieces, _ = log.format.write(kind, content, meta, log.origin(meta.batch))
        store.replace(path, *pieces)

    write(Kind.SNAPSHOT, snapshot_path(last), graph or NO_ENTRY, meta)
    kept = [last]
    if before is not None:
        kept.append(last - 1)
        write(Kind.SNAPSHOT, snapshot_path(last - 1), before, EntryMeta(last - 1, rows=0, input_hash=0))
    write(Kind.ENTRY, entry_path(last), entry, meta)
    for batch in batches_in(store, SNAPSHOTS):
        if batch not in kept:
            store.delete(snapshot_path(batch))
    for batch in batches_in(store, LOG):
        if batch != last:
            store.delete(entry_path(batch))
    log.look_again()
