"""The arrow host: operators inside Spark tasks, one exchange between any two of them.

Parts come from the parcels, never from the partition id: a task may carry several parts, and how many tasks
there are may change at every restart.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, FloatType, StructType

from d3gnn.spark.control import control_stream
from d3gnn.spark.frames import EVENT_COLUMNS, event_columns
from d3gnn.spark.rows import COMMAND, OUTPUT, output_rows, read_rows
from d3gnn.spark.runtime import Done, Plan, Runtime

Batches = Iterator[pa.RecordBatch]

#: What operators say of a batch, in columns beside their parcels; zero in all rows but one.
_PARTITION_METRICS = (
    "busy_us", "kept", "applied", "repeated", "late", "dead", "refreshed", "vertices", "replicas",
)  # fmt: skip
_OUTPUT_METRICS = ("busy_us", "kept", "messages", "touched", "recomputed")
_METRICS = (*_OUTPUT_METRICS, "bytes")
#: Vertex 0 runs in the same task as Partition, and says the same as any operator, under other names.
_INPUT = "vertex_0_"
_INPUT_METRICS = (*_PARTITION_METRICS, *(_INPUT + metric for metric in _METRICS))
#: No Arrow batch that leaves a task is larger than this, unless a single parcel is.
_YIELD = 2 * 2**20


def with_commands(store: str, events: DataFrame) -> DataFrame:
    """The events in their one shape and, in rows of their own, the commands given to the pipeline."""
    # Columns that the events lack would travel as nulls, for nothing.
    events = event_columns(events).select(*(c for c in EVENT_COLUMNS if c in events.columns))
    commands = control_stream(events.sparkSession, f"{store}/control")
    mine = commands.select(F.col("kind").alias(COMMAND))
    events = events.withColumn(COMMAND, F.lit(None).cast("string"))
    rows = events.unionByName(mine, allowMissingColumns=True)
    if "value" in rows.columns:
        # No value and an empty one are the same; but on the way to Python, Arrow looks again at all nulls
        # before each null list: 0.5 s for 20,000 of them, and four times that for twice as many.
        rows = rows.withColumn("value", F.coalesce("value", F.array().cast("array<float>")))
    return rows


def run_inputs(plan: Plan, events: DataFrame) -> DataFrame:
    """Partition and, behind it in the same task, Vertex 0: topology and the values of inputs come out."""
    # Without the observation an empty batch would have no task at all (zero partitions).
    watched = events.observe("d3gnn.events", F.count(F.lit(1)).alias("rows"))
    parcels = watched.coalesce(1).mapInArrow(_inputs_task(plan), _parcel_columns(_INPUT_METRICS))
    # A batch that was kept, and one of an empty graph, have no vertices to speak of.
    factor = F.try_divide(F.sum("replicas"), F.sum("vertices")).alias("replication_factor")
    sums = [F.sum(metric).alias(metric) for metric in _PARTITION_METRICS]
    parcels = parcels.observe("d3gnn.partition", *sums, factor)
    return _watched("vertex-0", parcels, _INPUT)


def run_operator(plan: Plan, name: str, sources: int, tasks: int, parcels: DataFrame) -> DataFrame:
    """Every part of one operator takes its parcels of a batch in."""
    task = _operator_task(plan, name, sources)
    parcels = _exchange(plan, tasks, "target", parcels).mapInArrow(task, _parcel_columns(_METRICS))
    return _watched(name, parcels)


def run_output(
    plan: Plan, name: str, sources: int, tasks: int, parcels: DataFrame, id_type: str, *, read_whole: bool
) -> DataFrame:
    """The last operator; rows for people come out. Not everybody reads all of them, unless `read_whole`."""
    task = _output_task(plan, name, sources)
    metrics = ", ".join(f"{metric} long" for metric in _OUTPUT_METRICS)
    schema = cast(StructType, StructType.fromDDL(f"part int, id {id_type}, {OUTPUT}, {metrics}"))
    # Numbers that cannot be null are written without a look at each.
    schema["embedding"].dataType = ArrayType(FloatType(), containsNull=False)
    rows = _exchange(plan, tasks, "target", parcels).mapInArrow(task, schema)
    watched = rows.observe(
        f"d3gnn.{name}",
        F.count(F.lit(1)).alias("rows"),
        F.count_if("deleted").alias("tombstones"),
        *(F.sum(column).alias(column) for column in _OUTPUT_METRICS),
    )
    # The last exchange: so that every operator has run, whatever is asked of the output.
    rows = watched.drop(*_OUTPUT_METRICS)
    if not read_whole:
        rows = _exchange(plan, tasks, "part", rows)
    return rows.drop("part")


def _parcel_columns(metrics: Sequence[str]) -> str:
    return ", ".join(["target int, parcel binary", *(f"{name} long" for name in metrics)])


def _watched(name: str, parcels: DataFrame, prefix: str = "") -> DataFrame:
    """Spark reports these sums in every batch's progress."""
    watched = parcels.observe(
        f"d3gnn.{name}",
        F.count(F.lit(1)).alias("parcels"),
        *(F.sum(prefix + metric).alias(metric) for metric in _METRICS),
    )
    return watched.select("target", "parcel")


def _exchange(plan: Plan, tasks: int, part: str, rows: DataFrame) -> DataFrame:
    return rows.repartitionById(tasks, F.expr(f"int({part} * {tasks} div {plan.parts})"))


def _batch_and_query() -> tuple[int, str]:
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("operators run inside Spark tasks")
    batch = context.getLocalProperty("streaming.sql.batchId")
    query = context.getLocalProperty("sql.streaming.queryId")
    if batch is None or query is None:
        raise RuntimeError("the pipeline runs in streaming queries only: give it a streaming DataFrame")
    return int(batch), query


def _inputs_task(plan: Plan) -> Callable[[Batches], Batches]:
    def task(batches: Batches) -> Batches:
        from d3gnn.spark.intake import intake_of

        number, query = _batch_and_query()
        events, commands = read_rows(batches)
        parcels, said = intake_of(plan, query).run(number, events, commands)
        mine: list[list[memoryview]] = [[] for _ in range(plan.parts)]
        for target, parcel in parcels:
            mine[target].append(_writable(pa.py_buffer(parcel)))
        for part in range(plan.parts):
            sent, metrics = Runtime.of(plan, query).run("vertex-0", part, mine[part], sources=1)
            said = said | {_INPUT + name: value for name, value in metrics.items()}
            yield from _parcel_batches(Done(sent, said), _INPUT_METRICS)
            said = {}

    return task


def _operator_task(plan: Plan, name: str, sources: int) -> Callable[[Batches], Batches]:
    def task(batches: Batches) -> Batches:
        _, query = _batch_and_query()
        for part, parcels in _by_target(batches):
            done = Runtime.of(plan, query).run(name, part, parcels, sources)
            yield from _parcel_batches(done, _METRICS)

    return task


def _output_task(plan: Plan, name: str, sources: int) -> Callable[[Batches], Batches]:
    def task(batches: Batches) -> Batches:
        _, query = _batch_and_query()
        for part, parcels in _by_target(batches):
            done = Runtime.of(plan, query).run(name, part, parcels, sources)
            yield from output_rows(plan, part, done, _OUTPUT_METRICS)

    return task


def _by_target(batches: Batches) -> Iterator[tuple[int, list[memoryview]]]:
    found: dict[int, list[memoryview]] = {}
    for batch in batches:
        for target, parcel in zip(batch.column("target").to_pylist(), batch.column("parcel"), strict=True):
            found.setdefault(target, []).append(_writable(parcel.as_buffer()))
    yield from sorted(found.items())


def _writable(buffer: pa.Buffer) -> memoryview:
    """The bytes, as ones that may be written to, without a copy.

    Nobody writes to them: but compiled code takes read-only arrays for another type, and would be compiled
    twice. They were read from Spark into this process, and nobody else has them.
    """
    owned = (ctypes.c_ubyte * buffer.size).from_address(buffer.address)
    owned.buffer = buffer  # lives as long as the view does
    return memoryview(owned).cast("B")


def _parcel_batches(done: Done, metrics: Sequence[str]) -> Batches:
    """The parcels as Arrow batches, over the bytes as they are."""
    parcels = done.parcels.for_rows()
    targets, ends, data = parcels.targets, [0, *parcels.ends], pa.py_buffer(parcels.data)
    first = 0
    while first < len(targets):
        last = first + 1
        while last < len(targets) and ends[last + 1] - ends[first] <= _YIELD:
            last += 1
        rows, begin = last - first, ends[first]
        offsets = np.array(ends[first : last + 1], np.int64) - begin
        buffers = [None, pa.py_buffer(offsets.astype(np.int32)), data.slice(begin, ends[last] - begin)]
        columns: dict[str, Any] = {
            "target": pa.array(targets[first:last], pa.int32()),
            "parcel": pa.Array.from_buffers(pa.binary(), rows, buffers),
        }
        for name in metrics:
            said = done.metrics.get(name, 0) if first == 0 else 0
            columns[name] = pa.array([said] + [0] * (rows - 1), pa.int64())
        yield pa.RecordBatch.from_pydict(columns)
        first = last
