"""Rows at the two ends of the chain: events and commands in, output rows out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from d3gnn.events import EventBatch
from d3gnn.kernel.blocks import Block
from d3gnn.runtime import metrics
from d3gnn.runtime.metrics import MetricRow
from d3gnn.runtime.outbox import read_outbox
from d3gnn.runtime.output import OutputSpec, row_counts
from d3gnn.runtime.packets import Inbox
from d3gnn.runtime.plan import Plan
from d3gnn.runtime.version import BatchVersion
from d3gnn.runtime.worker import PartResult

#: The column that holds a command. Rows where it is null are events.
COMMAND = "command"
#: The column of the metrics of a part, beside its output rows.
METRICS = "metrics"
#: Output rows in one Arrow batch.
_ROWS = 10_000


def output_schema(plan: Plan, id_type: str) -> pa.Schema:
    """The schema of what `output_rows` yields: the part, the output columns, and the metrics."""
    columns = OutputSpec.of(plan.chain, plan.config).schema(
        pa.string() if id_type == "string" else pa.int64()
    )
    return pa.schema([pa.field("part", pa.int32()), *columns, pa.field(METRICS, pa.string())])


def read_rows(batches: Iterable[pa.RecordBatch]) -> tuple[EventBatch | None, set[str]]:
    """The events of a batch, None if it has no rows at all, and the commands among them."""
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


def output_rows(plan: Plan, part: int, done: PartResult) -> Iterator[pa.RecordBatch]:
    """The output rows of one part of the last operator; the first row carries the metrics of the batch."""
    blocks, version = _output_blocks(plan, part, done)
    metric = MetricRow(METRICS, metrics.OUTPUT, part, done.metrics | _row_metrics(blocks))
    for batch in _batches(plan, part, blocks, version):
        yield batch.append_column(METRICS, metric.array(batch.num_rows))
        metric = metric.without_metrics()


def chain_rows(plan: Plan, schema: pa.Schema, done: PartResult) -> Iterator[pa.RecordBatch]:
    """The output rows of a whole chain, behind a row with nothing but the metrics of all operators."""
    found = [(part, *_output_blocks(plan, part, done)) for part in range(plan.parts)]
    counts = _row_metrics([block for _, blocks, _ in found for block in blocks])
    values = [json.dumps(metrics.chain_metrics(plan.chain, done.metrics, done.behind, counts))]
    alone = [pa.array(values) if f.name == METRICS else pa.nulls(1, f.type) for f in schema]
    yield pa.RecordBatch.from_arrays(alone, schema=schema)
    for batch in chain.from_iterable(_batches(plan, *each) for each in found):
        yield batch.append_column(METRICS, pa.nulls(batch.num_rows, pa.string()))


def _output_blocks(plan: Plan, part: int, done: PartResult) -> tuple[list[Block], BatchVersion]:
    inbox = Inbox.of([packet for target, packet in done.packets if target == part], sources=1)
    kinds = OutputSpec.of(plan.chain, plan.config).kinds
    return [block for block in inbox.blocks(read_outbox) if block.kind in kinds], inbox.version


def _row_metrics(blocks: list[Block]) -> dict[str, Any]:
    rows, tombstones, arrivals = row_counts(blocks)
    return {"rows": rows, "tombstones": tombstones, metrics.ARRIVALS: metrics.arrival_quantiles(arrivals)}


def _batches(plan: Plan, part: int, blocks: list[Block], version: BatchVersion) -> Iterator[pa.RecordBatch]:
    """The output rows of a part, with the part as their first column."""
    spec = OutputSpec.of(plan.chain, plan.config)
    for batch in spec.batches(blocks, version.batch, version.model, most=_ROWS):
        parts = pa.repeat(pa.scalar(part, pa.int32()), batch.num_rows)
        yield pa.RecordBatch.from_arrays([parts, *batch.columns], ["part", *batch.schema.names])
