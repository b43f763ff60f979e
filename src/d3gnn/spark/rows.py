"""Rows at the two ends of the chain: events and commands come in, embeddings go out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from d3gnn.events import EventBatch
from d3gnn.kernel.blocks import Kind, block_keys, block_pairs
from d3gnn.spark import metrics
from d3gnn.spark.metrics import Said
from d3gnn.spark.outbox import read_sent
from d3gnn.spark.parcels import Delivery
from d3gnn.spark.runtime import Done, Plan
from d3gnn.types import Array

#: The output's columns, `id` aside, which has the type of the events' ids.
OUTPUT = "embedding array<float>, time long, arrival long, batch long, model_version long, deleted boolean"
#: And what a model's head says, where it has one.
SAYS = "prediction float, score float"
#: What comes out of a model whose head is for pairs, `src` and `dst` aside.
PAIRS = "score float, asked boolean, time long, arrival long, batch long, model_version long, deleted boolean"
#: Rows with a command are not events.
COMMAND = "command"
_ROWS = 10_000


def output_columns(plan: Plan, id_type: str) -> str:
    """The columns of rows for people, the part that they come from first."""
    if plan.pairs:
        return f"part int, src {id_type}, dst {id_type}, {PAIRS}"
    return f"part int, id {id_type}, {OUTPUT}" + (f", {SAYS}" if plan.says else "")


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
    kind = Kind.PAIRS if plan.pairs else Kind.OUTPUT
    deleted, arrival = (1, 3) if plan.pairs else (0, 2)  # columns
    blocks = [block for block in delivery.blocks(read_sent) if block.kind == kind]
    tombstones = sum(int((block.columns[deleted] > 0).sum()) for block in blocks)
    counts = {
        "rows": sum(map(len, blocks)),
        "tombstones": tombstones,
        metrics.ARRIVALS: metrics.arrival_quantiles([block.columns[arrival] for block in blocks]),
    }
    said = Said("said", metrics.OUTPUT, part, done.metrics | counts)
    order = [column.split()[0] for column in output_columns(plan, "string").split(", ")]
    for block in blocks:
        ids = block_pairs(block) if plan.pairs else (block_keys(block),)
        keys = [id.to_arrow() for id in ids]
        for begin in range(0, len(block), _ROWS):
            end = min(begin + _ROWS, len(block))
            n, some = end - begin, [column[begin:end] for column in block.columns]
            names = [_plain(key.slice(begin, n)) for key in keys]
            columns = _pair_columns(names, some) if plan.pairs else _vertex_columns(plan, names, some)
            columns |= {
                "part": pa.array(np.full(n, part, np.int32)),
                "batch": pa.array(np.full(n, delivery.stamp.batch, np.int64)),
                "model_version": pa.array(np.full(n, plan.model_version, np.int64)),
            }
            yield pa.RecordBatch.from_pydict(
                {name: columns[name] for name in order} | {said.column: said.array(n)}
            )
            said = said.silent()


def _vertex_columns(plan: Plan, names: list[pa.Array], columns: list[Array]) -> dict[str, pa.Array]:
    deleted, time, arrival, embedding = columns[:4]
    n, width = embedding.shape
    offsets = pa.array(np.arange(0, (n + 1) * width, width, dtype=np.int32))
    rows = {
        "id": names[0],
        "embedding": pa.ListArray.from_arrays(offsets, pa.array(embedding.reshape(-1))),
        "time": pa.array(time),
        "arrival": pa.array(arrival),
        "deleted": pa.array(deleted > 0),
    }
    if plan.says:
        says = columns[4]
        rows |= {name: _or_null(says[:, i]) for i, name in enumerate(("prediction", "score"))}
    return rows


def _pair_columns(names: list[pa.Array], columns: list[Array]) -> dict[str, pa.Array]:
    asked, deleted, time, arrival, score = columns[:5]
    return {
        "src": names[0],
        "dst": names[1],
        "score": _or_null(score),
        "asked": pa.array(asked > 0),
        "time": pa.array(time),
        "arrival": pa.array(arrival),
        "deleted": pa.array(deleted > 0),
    }


def _or_null(numbers: Array) -> pa.Array:
    return pa.array(numbers, from_pandas=True)  # NaN is null


def _plain(ids: pa.Array) -> pa.Array:
    return ids.cast(pa.string()) if pa.types.is_large_string(ids.type) else ids
