"""How much of a graph log a rebuild reads."""

from __future__ import annotations

import pyarrow.parquet as pq

from d3gnn.store.graph_log import GraphLog
from d3gnn.store.names import SNAPSHOTS, batches_in, snapshot_path


def log_size(log: GraphLog) -> tuple[int, int]:
    """Events in the newest snapshot, and events of the batches after it."""
    last = log.last()
    if last is None:
        return 0, 0
    snapshot = max((batch for batch in batches_in(log.store, SNAPSHOTS) if batch <= last), default=None)
    rows = 0
    if snapshot is not None:
        with log.store.open_input(snapshot_path(snapshot)) as source:
            rows = pq.ParquetFile(source).metadata.num_rows
    later = range(0 if snapshot is None else snapshot + 1, last + 1)
    metas = [log.meta(batch) for batch in later]
    return rows, sum(meta.rows for meta in metas if meta is not None)
