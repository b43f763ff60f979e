"""How much of a graph log a rebuild reads: whether a snapshot is due."""

from __future__ import annotations

import pyarrow.parquet as pq

from d3gnn.store.graph_log import GraphLog
from d3gnn.store.names import SNAPSHOTS, batches_in, snapshot_path


def rebuilt_from(log: GraphLog) -> tuple[int, int]:
    """Events in the newest snapshot, and events of the batches after it."""
    last, rows = log.last(), 0
    if last is None:
        return 0, 0
    snapshot = max((batch for batch in batches_in(log.store, SNAPSHOTS) if batch <= last), default=-1)
    if snapshot >= 0:
        with log.store.open_input(snapshot_path(snapshot)) as source:
            rows = pq.ParquetFile(source).metadata.num_rows
    metas = [log.meta(batch) for batch in range(snapshot + 1, last + 1)]
    return rows, sum(meta.rows for meta in metas if meta is not None)
