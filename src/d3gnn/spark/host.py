"""The arrow host: operators inside Spark tasks, one exchange between any two of them.

Parts come from the parcels, never from the partition id: a task may carry several parts, and how many tasks
there are may change at every restart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from d3gnn.spark.control import control_stream
from d3gnn.spark.frames import EVENT_COLUMNS, event_columns
from d3gnn.spark.rows import COMMAND, output_rows, read_rows
from d3gnn.spark.runtime import Done, Plan, Runtime

Batches = Iterator[pa.RecordBatch]

PARCELS = "target int, parcel binary, busy_us long, messages long, touched long, kept long"
_COLUMNS = ("busy_us", "messages", "touched", "kept")
#: No Arrow batch that leaves a task is larger than this, unless a single parcel is.
_YIELD = 32 * 2**20


def with_commands(store: str, events: DataFrame) -> DataFrame:
    """The events in their one shape and, in rows of their own, the commands given to the pipeline."""
    # Columns that the events lack would travel as nulls, for nothing.
    events = event_columns(events).select(*(c for c in EVENT_COLUMNS if c in events.columns))
    commands = control_stream(events.sparkSession, f"{store}/control")
    mine = commands.select(F.col("kind").alias(COMMAND))
    return events.withColumn(COMMAND, F.lit(None).cast("string")).unionByName(mine, allowMissingColumns=True)


def run_partition(plan: Plan, events: DataFrame) -> DataFrame:
    """One task takes the events of a batch in; parcels of topology and features come out."""
    # Without the observation an empty batch would have no task at all (zero partitions).
    watched = events.observe("d3gnn.events", F.count(F.lit(1)).alias("rows"))
    return watched.coalesce(1).mapInArrow(_partition_task(plan), PARCELS)


def run_operator(plan: Plan, name: str, sources: int, tasks: int, parcels: DataFrame) -> DataFrame:
    """Every part of one operator takes its parcels of a batch in."""
    return _exchange(plan, name, tasks, parcels).mapInArrow(_operator_task(plan, name, sources), PARCELS)


def run_output(plan: Plan, name: str, sources: int, tasks: int, parcels: DataFrame, schema: str) -> DataFrame:
    """The last operator; rows for people come out."""
    task = _output_task(plan, name, sources)
    rows = _exchange(plan, name, tasks, parcels).mapInArrow(task, f"part int, {schema}")
    # A last exchange, so that every operator has run, whatever is asked of the output.
    return rows.repartitionById(tasks, F.expr(f"int(part * {tasks} div {plan.parts})")).drop("part")


def _exchange(plan: Plan, name: str, tasks: int, parcels: DataFrame) -> DataFrame:
    sums = [F.sum(column).alias(column) for column in _COLUMNS]
    watched = parcels.observe(
        f"d3gnn.to.{name}",
        F.count(F.lit(1)).alias("parcels"),
        F.sum(F.octet_length("parcel")).alias("bytes"),
        *sums,
    )
    return watched.repartitionById(tasks, F.expr(f"int(target * {tasks} div {plan.parts})"))


def _batch_and_query() -> tuple[int, str]:
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("operators run inside Spark tasks")
    batch = context.getLocalProperty("streaming.sql.batchId")
    query = context.getLocalProperty("sql.streaming.queryId")
    if batch is None or query is None:
        raise RuntimeError("the pipeline runs in streaming queries only: give it a streaming DataFrame")
    return int(batch), query


def _partition_task(plan: Plan) -> Callable[[Batches], Batches]:
    def task(batches: Batches) -> Batches:
        from d3gnn.spark.intake import intake_of

        number, query = _batch_and_query()
        events, commands = read_rows(batches)
        yield from _parcel_batches(intake_of(plan, query).run(number, events, commands))

    return task


def _operator_task(plan: Plan, name: str, sources: int) -> Callable[[Batches], Batches]:
    def task(batches: Batches) -> Batches:
        _, query = _batch_and_query()
        for part, parcels in _by_target(batches):
            yield from _parcel_batches(Runtime.of(plan, query).run(name, part, parcels, sources))

    return task


def _output_task(plan: Plan, name: str, sources: int) -> Callable[[Batches], Batches]:
    def task(batches: Batches) -> Batches:
        _, query = _batch_and_query()
        for part, parcels in _by_target(batches):
            done = Runtime.of(plan, query).run(name, part, parcels, sources)
            yield from output_rows(plan, part, done)

    return task


def _by_target(batches: Batches) -> Iterator[tuple[int, list[bytearray]]]:
    found: dict[int, list[bytearray]] = {}
    for batch in batches:
        for target, parcel in zip(batch.column("target").to_pylist(), batch.column("parcel"), strict=True):
            # A copy that can be written to: compiled code takes read-only arrays for another type.
            found.setdefault(target, []).append(bytearray(parcel.as_buffer()))
    yield from sorted(found.items())


def _parcel_batches(done: Done) -> Batches:
    rows: list[tuple[int, bytes]] = []
    size = 0
    first = True
    for target, parcel in done.parcels:
        if rows and size + len(parcel) > _YIELD:
            yield _parcel_batch(rows, done.metrics if first else {})
            rows, size, first = [], 0, False
        rows.append((target, parcel))
        size += len(parcel)
    if rows:
        yield _parcel_batch(rows, done.metrics if first else {})


def _parcel_batch(rows: list[tuple[int, bytes]], metrics: dict[str, int]) -> pa.RecordBatch:
    n = len(rows)
    columns: dict[str, Any] = {
        "target": pa.array([target for target, _ in rows], pa.int32()),
        "parcel": pa.array([parcel for _, parcel in rows], pa.binary()),
    }
    for name in _COLUMNS:
        columns[name] = pa.array([metrics.get(name, 0)] + [0] * (n - 1), pa.int64())
    return pa.RecordBatch.from_pydict(columns)
