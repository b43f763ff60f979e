"""The arrow host: operators inside Spark tasks, one exchange between any two of them.

Parts come from the parcels, never from the partition id: a task may carry several parts, and how many tasks
there are may change at every restart.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, cast

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, FloatType, StructType

from d3gnn.spark import metrics
from d3gnn.spark.control import Watched, control_stream
from d3gnn.spark.frames import EVENT_COLUMNS, event_columns
from d3gnn.spark.metrics import Said
from d3gnn.spark.parcels import Parcels
from d3gnn.spark.rows import COMMAND, output_columns, output_rows, read_rows
from d3gnn.spark.runtime import Plan, Runtime

Batches = Iterator[pa.RecordBatch]

#: No Arrow batch that leaves a task is larger than this, unless a single parcel is.
_YIELD = 2 * 2**20


def in_shape(events: DataFrame) -> DataFrame:
    """The events in their one shape. Columns that they lack would travel as nulls, for nothing."""
    return event_columns(events).select(*(c for c in EVENT_COLUMNS if c in events.columns))


def with_commands(plan: Plan, events: DataFrame) -> DataFrame:
    """The events and, in rows of their own, the commands given to the pipeline."""
    watched = Watched(plan.arrays, plan.made_with, plan.windowed, by_time=plan.clock == "batch")
    commands = control_stream(events.sparkSession, f"{plan.store}/control", watched=watched)
    mine = commands.select(F.col("kind").alias(COMMAND))
    events = events.withColumn(COMMAND, F.lit(None).cast("string"))
    rows = events.unionByName(mine, allowMissingColumns=True)
    if "value" in rows.columns:
        # No value and an empty one are the same; but on the way to Python, Arrow looks again at all nulls
        # before each null list: 0.5 s for 20,000 of them, and four times that for twice as many.
        rows = rows.withColumn("value", F.coalesce("value", F.array().cast("array<float>")))
    return rows


def run_inputs(plan: Plan, events: DataFrame) -> DataFrame:
    """Partition and, behind it in the same task, Vertex 0: topology and the values of inputs come out.

    Edge 0, which counts degrees, stands between the two in the models that have it.
    """
    # Without the observation an empty batch would have no task at all (zero partitions).
    watched = events.observe("d3gnn.events", F.count(F.lit(1)).alias("rows"))
    names = ["partition", *_input_operators(plan)]
    columns = _parcel_columns(*map(_column, names))
    parcels = watched.coalesce(1).mapInArrow(_inputs_task(plan), columns)
    for name in names:
        parcels = metrics.watch(name, parcels, _column(name))
    return parcels


def _input_operators(plan: Plan) -> list[str]:
    """Those that run in Partition's task."""
    return plan.operators[: 2 if plan.degrees else 1]


def _column(operator: str) -> str:
    return operator.replace("-", "_")


def run_operator(plan: Plan, name: str, sources: int, tasks: int, parcels: DataFrame) -> DataFrame:
    """Every part of one operator takes its parcels of a batch in."""
    task = _operator_task(plan, name, sources)
    columns = _parcel_columns("said")
    parcels = _exchange(plan, tasks, parcels).mapInArrow(task, columns)
    return metrics.watch(name, parcels, "said")


def run_output(
    plan: Plan, name: str, sources: int, tasks: int, parcels: DataFrame, id_type: str, *, read_whole: bool
) -> DataFrame:
    """The last operator; rows for people come out. Not everybody reads all of them, unless `read_whole`."""
    task = _output_task(plan, name, sources)
    columns = f"{output_columns(plan, id_type)}, said {metrics.SAID}"
    schema = cast(StructType, StructType.fromDDL(columns))
    if not plan.pairs:  # numbers that cannot be null are written without a look at each
        schema["embedding"].dataType = ArrayType(FloatType(), containsNull=False)
    rows = _exchange(plan, tasks, parcels).mapInArrow(task, schema)
    rows = metrics.watch(name, rows, "said").drop("said")
    if not read_whole:  # a last exchange, so that every operator has run, whatever is asked of the output
        rows = rows.repartitionById(tasks, _task("part", plan, tasks))
    return rows.drop("part")


def _parcel_columns(*said: str) -> str:
    return ", ".join(["target int, parcel binary", *(f"{name} {metrics.SAID}" for name in said)])


def _exchange(plan: Plan, tasks: int, parcels: DataFrame) -> DataFrame:
    return parcels.select("target", "parcel").repartitionById(tasks, _task("target", plan, tasks))


def _task(part: str, plan: Plan, tasks: int) -> Column:
    return F.expr(f"int({part} * {tasks} div {plan.parts})")


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
        runtime = Runtime.of(plan, query)
        first = intake_of(plan, query).run(number, events, commands)
        sent = [first.parcels]
        said: dict[str, list[dict[str, int] | None]] = {"partition": [first.metrics, *[None] * plan.parts]}
        for name in _input_operators(plan):
            mine: list[list[memoryview]] = [[] for _ in range(plan.parts)]
            for target, parcel in chain.from_iterable(sent):
                mine[target].append(_writable(pa.py_buffer(parcel)))
            done = [runtime.run(name, part, mine[part], len(sent)) for part in range(plan.parts)]
            sent, said[name] = [each.parcels for each in done], [each.metrics for each in done]
        for part, parcels in enumerate(sent):
            yield from _parcel_batches(
                parcels,
                *(
                    Said(_column(name), metrics.names_of(name), part, told[part])
                    for name, told in said.items()
                ),
            )

    return task


def _operator_task(plan: Plan, name: str, sources: int) -> Callable[[Batches], Batches]:
    def task(batches: Batches) -> Batches:
        _, query = _batch_and_query()
        for part, parcels in _by_target(batches):
            done = Runtime.of(plan, query).run(name, part, parcels, sources)
            yield from _parcel_batches(done.parcels, Said("said", metrics.OPERATOR, part, done.metrics))

    return task


def _output_task(plan: Plan, name: str, sources: int) -> Callable[[Batches], Batches]:
    def task(batches: Batches) -> Batches:
        _, query = _batch_and_query()
        for part, parcels in _by_target(batches):
            done = Runtime.of(plan, query).run(name, part, parcels, sources)
            yield from output_rows(plan, part, done)

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


def _parcel_batches(parcels: Parcels, *said: Said) -> Batches:
    """The parcels as Arrow batches, over the bytes as they are; the first row says what is said."""
    parcels = parcels.for_rows()
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
        columns |= {each.column: each.array(rows) for each in said}
        yield pa.RecordBatch.from_pydict(columns)
        first, said = last, tuple(each.silent() for each in said)
