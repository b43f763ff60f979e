"""Rows at the two ends of the chain: events and commands come in, embeddings go out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from d3gnn.events import EventBatch
from d3gnn.kernel.blocks import Kind, block_keys
from d3gnn.spark import metrics
from d3gnn.spark.metrics import Said
from d3gnn.spark.outbox import read_sent
from d3gnn.spark.parcels import Delivery
from d3gnn.spark.runtime import Done, Plan

#: The output's columns, `id` aside, which has the type of the events' ids.
OUTPUT = "embedding array<float>, time long, arrival long, batch long, model_version long, deleted boolean"
#: And what a model's head says, where it has one.
SAYS = "prediction float, score float"
#: Rows with a command are not events.
COMMAND = "command"
_ROWS = 10_000


def read_rows(batches: Iterable[pa.RecordBatch]) -> tuple[EventBatch | None, set[str]]:
    """The events of a batch, None for no rows at all, and the commands among them."""
    tables = [batch for batch in batches if batch.num_rows]
    if not tables:
        return None, set()
    table = pa.Table.from_batches(tables)
    commands: set[str] = set()
    if COMMAND in table.column_names:
        named = table[COMMAND]
        commands = set(pc.drop_null(named).to_pylist())
        table = table.filter(pc.is_null(named)).drop_columns([COMMAND])
    return EventBatch.from_arrow(table) if table.num_rows else None, commands


def output_rows(plan: Plan, part: int, done: Done) -> Iterator[pa.RecordBatch]:
    """What the last operator part sends, as rows for people; the first row has the metrics of the batch."""
    delivery = Delivery.of([parcel for target, parcel in done.parcels if target == part], sources=1)
    blocks = [block for block in delivery.blocks(read_sent) if block.kind == Kind.OUTPUT]
    tombstones = sum(int((block.columns[0] > 0).sum()) for block in blocks)
    counts = {
        "rows": sum(map(len, blocks)),
        "tombstones": tombstones,
        metrics.ARRIVALS: metrics.arrival_quantiles([block.columns[2] for block in blocks]),
    }
    said = Said("said", metrics.OUTPUT, part, done.metrics | counts)
    for block in blocks:
        deleted, time, arrival, embedding = block.columns[:4]
        width, ids = embedding.shape[1], block_keys(block).to_arrow()
        for begin in range(0, len(block), _ROWS):
            end = min(begin + _ROWS, len(block))
            n = end - begin
            values = pa.array(embedding[begin:end].reshape(-1))
            offsets = pa.array(np.arange(0, (n + 1) * width, width, dtype=np.int32))
            head = {}
            if plan.says:
                says = block.columns[4][begin:end]
                names = ("prediction", "score")
                head = {name: pa.array(says[:, i], from_pandas=True) for i, name in enumerate(names)}
            yield pa.RecordBatch.from_pydict(
                {
                    "part": pa.array(np.full(n, part, np.int32)),
                    "id": _plain(ids.slice(begin, n)),
                    "embedding": pa.ListArray.from_arrays(offsets, values),
                    "time": pa.array(time[begin:end]),
                    "arrival": pa.array(arrival[begin:end]),
                    "batch": pa.array(np.full(n, delivery.stamp.batch, np.int64)),
                    "model_version": pa.array(np.full(n, plan.model_version, np.int64)),
                    "deleted": pa.array(deleted[begin:end] > 0),
                    **head,
                    said.column: said.array(n),
                }
            )
            said = said.silent()


def _plain(ids: pa.Array) -> pa.Array:
    return ids.cast(pa.string()) if pa.types.is_large_string(ids.type) else ids
