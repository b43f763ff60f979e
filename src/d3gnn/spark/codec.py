"""Rows at the two ends of the chain: events and commands in, output rows out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from d3gnn.events import EventBatch
from d3gnn.runtime import metrics
from d3gnn.runtime.metrics import MetricRow
from d3gnn.runtime.outbox import read_outbox
from d3gnn.runtime.output import OutputSpec, row_counts
from d3gnn.runtime.packets import Inbox
from d3gnn.runtime.plan import Plan
from d3gnn.runtime.worker import PartResult

#: The column that holds a command. Rows where it is null are events.
COMMAND = "command"
#: The column of the metrics of a part, beside its output rows.
METRICS = "metrics"
#: Output rows in one Arrow batch.
_ROWS = 10_000


def output_schema(plan: Plan, id_type: str) -> StructType:
    """The Spark schema of what `output_rows` yields: the part, the output columns, and the metrics."""
    columns = OutputSpec.of(plan.chain, plan.config).schema(
        pa.string() if id_type == "string" else pa.int64()
    )
    fields = [pa.field("part", pa.int32()), *columns, pa.field(METRICS, pa.string())]
    return from_arrow_schema(pa.schema(fields))


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
    inbox = Inbox.of([packet for target, packet in done.packets if target == part], sources=1)
    spec = OutputSpec.of(plan.chain, plan.config)
    blocks = [block for block in inbox.blocks(read_outbox) if block.kind in spec.kinds]
    rows, tombstones, arrivals = row_counts(blocks)
    counts = {
        "rows": rows,
        "tombstones": tombstones,
        metrics.ARRIVALS: metrics.arrival_quantiles(arrivals),
    }
    metric = MetricRow(METRICS, metrics.OUTPUT, part, done.metrics | counts)
    for batch in spec.batches(blocks, inbox.version.batch, plan.model_version, most=_ROWS):
        n = batch.num_rows
        parts = pa.repeat(pa.scalar(part, pa.int32()), n)
        names = ["part", *batch.schema.names, METRICS]
        yield pa.RecordBatch.from_arrays([parts, *batch.columns, metric.array(n)], names)
        metric = metric.without_metrics()
