"""The chain of operators as stages of a Spark query.

With one task, the whole chain is one stage. With several, every operator is a stage of its own, with one
exchange between any two of them: a task reads its parts from the packets, never from its partition id, may
carry several parts, and the number of tasks may change at every restart.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from d3gnn.events.neighbours import NEIGHBOURS
from d3gnn.kernel.operators.base import PARTITION, OperatorId
from d3gnn.kernel.windows.base import microseconds
from d3gnn.runtime import metrics
from d3gnn.runtime.metrics import MetricRow
from d3gnn.runtime.packets import Packets
from d3gnn.runtime.plan import Plan
from d3gnn.runtime.worker import PartResult
from d3gnn.sources.control import WatchedPipeline, control_stream
from d3gnn.spark.codec import COMMAND, METRICS, chain_rows, output_rows, output_schema, read_rows
from d3gnn.spark.frames import EVENT_COLUMNS, absent_columns, event_columns
from d3gnn.spark.homes import at_home
from d3gnn.spark.task import QueryTask

Batches = Iterator[pa.RecordBatch]

#: No Arrow batch that leaves a task is larger than this, unless a single packet is.
_YIELD = 2 * 2**20


def in_event_format(events: DataFrame) -> DataFrame:
    """The events with the types of the event format, without columns that they lack or that are all null."""
    if not events.isStreaming:
        raise ValueError(
            "events is not a streaming DataFrame: read the source with spark.readStream; for a batch, use "
            "availableNow=True, which ends when everything is processed"
        )
    carried = set(events.columns) - set(absent_columns(events))
    if NEIGHBOURS in carried:
        carried |= {"dst", "element"}
    return event_columns(events).select(*(name for name in EVENT_COLUMNS if name in carried))


def with_commands(plan: Plan, events: DataFrame) -> DataFrame:
    """The events and, in rows of their own, the commands to the pipeline."""
    windows = [microseconds(window.longest) for window in plan.config.windows if window is not None]
    watched = WatchedPipeline(
        plan.arrays, plan.config_fingerprint, plan.config.windowed, by_time=plan.config.clock == "batch",
        expires=plan.config.schema.idle is not None, longest=max(windows, default=0),
        cluster=bool(plan.homes),
    )  # fmt: skip
    commands = control_stream(events.sparkSession, f"{plan.store}/control", watched=watched)
    command_rows = commands.select(F.col("kind").alias(COMMAND))
    events = events.withColumn(COMMAND, F.lit(None).cast("string"))
    rows = events.unionByName(command_rows, allowMissingColumns=True)
    if "value" in rows.columns:
        # Null and empty values mean the same. Empty lists travel faster: Arrow scans all nulls before each
        # null list, 0.5 s for 20,000 of them, and four times that for twice as many.
        rows = rows.withColumn("value", F.coalesce("value", F.array().cast("array<float>")))
    return rows


def run_chain(plan: Plan, events: DataFrame, id_type: str, *, read_whole: bool) -> DataFrame:
    """Partition and all operators in one task, and the output rows. `read_whole`: as for `run_output`."""
    schema = output_schema(plan, id_type)
    rows = _in_one_task(events).mapInArrow(_chain_task(plan, schema), from_arrow_schema(schema))
    rows = rows.observe(f"{metrics.PREFIX}{metrics.CHAIN}", F.collect_list(METRICS).alias("parts"))
    # The first row of a batch holds nothing but the metrics.
    rows = rows.where(F.col("part").isNotNull()).drop(METRICS)
    return _read_by_any_sink(plan, plan.parts, rows, read_whole)


def run_inputs(plan: Plan, events: DataFrame, homes: DataFrame | None = None) -> DataFrame:
    """Partition and Vertex 0 in one task (with Edge 0 between them in models that need degrees).

    On a cluster, that is the first task of the table `homes`, and the others have nothing to do.
    """
    names = [PARTITION, *plan.chain.inputs]
    columns = _packet_columns(*map(_column, names))
    rows = _in_one_task(events) if homes is None else at_home(events, _first_task(), homes)
    packets = rows.mapInArrow(_inputs_task(plan), columns)
    for name in names:
        packets = _observe(name, packets, _column(name))
    return packets


def _first_task() -> Column:
    # 0. A plain constant would make Spark plan another join with the homes, which ignores their places.
    return F.spark_partition_id() * 0


def _in_one_task(events: DataFrame) -> DataFrame:
    # The observation makes Spark run a task for an empty batch, too (it has zero partitions).
    return events.observe("d3gnn.events", F.count(F.lit(1)).alias("rows")).coalesce(1)


def _column(operator: OperatorId) -> str:
    return str(operator).replace("-", "_")


def run_operator(
    plan: Plan, name: OperatorId, packets: DataFrame, homes: DataFrame | None = None
) -> DataFrame:
    """One operator, all its parts: an exchange, then the packets that it sends."""
    task = _operator_task(plan, name)
    packets = _exchange(plan, packets, homes).mapInArrow(task, _packet_columns(METRICS))
    return _observe(name, packets, METRICS)


def run_output(
    plan: Plan,
    name: OperatorId,
    packets: DataFrame,
    id_type: str,
    homes: DataFrame | None = None,
    *,
    read_whole: bool,
) -> DataFrame:
    """The last operator, and the output rows. `read_whole`: the sink is known to read all of them."""
    task = _output_task(plan, name)
    rows = _exchange(plan, packets, homes).mapInArrow(task, from_arrow_schema(output_schema(plan, id_type)))
    rows = _observe(name, rows, METRICS).drop(METRICS)
    return _read_by_any_sink(plan, plan.tasks, rows, read_whole)


def _read_by_any_sink(plan: Plan, tasks: int, rows: DataFrame, read_whole: bool) -> DataFrame:
    if not read_whole:  # one more exchange: every operator then runs, even if the sink reads only a part
        rows = rows.repartitionById(tasks, _task("part", plan, tasks))
    return rows.drop("part")


def _observe(operator: OperatorId, frame: DataFrame, column: str) -> DataFrame:
    """The frame, whose column of metrics is reported with the progress of every batch."""
    return frame.observe(f"{metrics.PREFIX}{operator}", F.collect_list(column).alias("parts"))


def _packet_columns(*metric_columns: str) -> str:
    return ", ".join(["target int, packet binary", *(f"{name} string" for name in metric_columns)])


def _exchange(plan: Plan, packets: DataFrame, homes: DataFrame | None) -> DataFrame:
    packets, task = packets.select("target", "packet"), _task("target", plan, plan.tasks)
    return packets.repartitionById(plan.tasks, task) if homes is None else at_home(packets, task, homes)


def _task(part: str, plan: Plan, tasks: int) -> Column:
    return F.expr(f"int({part} * {tasks} div {plan.parts})")


def _chain_task(plan: Plan, schema: pa.Schema) -> Callable[[Batches], Batches]:
    def task(batches: Batches) -> Batches:
        from d3gnn.runtime.workers import coordinator_of

        current = QueryTask.current()
        coordinator = coordinator_of(current.worker(plan))
        yield from chain_rows(plan, schema, coordinator.run(current.batch, *read_rows(batches)))

    return task


def _inputs_task(plan: Plan) -> Callable[[Batches], Batches]:
    def task(batches: Batches) -> Batches:
        from d3gnn.runtime.workers import coordinator_of

        current, (events, commands) = QueryTask.current(), read_rows(batches)
        if plan.homes and not _is_first(current, events is not None or bool(commands)):
            return
        worker = current.worker(plan)
        first = coordinator_of(worker).run(current.batch, events, commands)
        sent = [first.packets]
        by_part: dict[OperatorId, list[dict[str, int] | None]] = {
            PARTITION: [first.metrics, *[None] * plan.parts]
        }
        for name in plan.chain.inputs:
            inboxes: list[list[memoryview]] = [[] for _ in range(plan.parts)]
            for target, packet in chain.from_iterable(sent):
                inboxes[target].append(_writable(pa.py_buffer(packet)))
            done = [worker.run(name, part, inboxes[part], len(sent)) for part in range(plan.parts)]
            sent, by_part[name] = [each.packets for each in done], [each.metrics for each in done]
        for part, packets in enumerate(sent):
            yield from _packet_batches(
                packets,
                *(
                    MetricRow(_column(name), metrics.metric_names(name), part, found[part])
                    for name, found in by_part.items()
                ),
            )

    return task


def _is_first(task: QueryTask, has_rows: bool) -> bool:
    """Whether this is the task of Partition. In a batch without rows, only its number tells."""
    if task.number and has_rows:
        raise RuntimeError(
            f"rows for the task of Partition are in task {task.number}: Spark has not planned the exchange "
            "by task"
        )
    return task.number == 0


def _operator_task(plan: Plan, name: OperatorId) -> Callable[[Batches], Batches]:
    def task(batches: Batches) -> Batches:
        for part, done in _run_parts(plan, name, batches):
            yield from _packet_batches(done.packets, MetricRow(METRICS, metrics.OPERATOR, part, done.metrics))

    return task


def _output_task(plan: Plan, name: OperatorId) -> Callable[[Batches], Batches]:
    def task(batches: Batches) -> Batches:
        for part, done in _run_parts(plan, name, batches):
            yield from output_rows(plan, part, done)

    return task


def _run_parts(plan: Plan, name: OperatorId, batches: Batches) -> Iterator[tuple[int, PartResult]]:
    """Run an operator on the parts of this task; each got a packet from every part before it."""
    worker = QueryTask.current().worker(plan)
    for part, packets in _by_target(batches):
        yield part, worker.run(name, part, packets, sources=plan.parts)


def _by_target(batches: Batches) -> Iterator[tuple[int, list[memoryview]]]:
    found: dict[int, list[memoryview]] = {}
    for batch in batches:
        for target, packet in zip(batch.column("target").to_pylist(), batch.column("packet"), strict=True):
            found.setdefault(target, []).append(_writable(packet.as_buffer()))
    yield from sorted(found.items())


def _writable(buffer: pa.Buffer) -> memoryview:
    """A writable view of the bytes, without a copy.

    Nothing writes to them. But numba compiles a second version of each function for read-only arrays.
    """
    owned = (ctypes.c_ubyte * buffer.size).from_address(buffer.address)
    owned.buffer = buffer  # keeps the memory alive as long as the view
    return memoryview(owned).cast("B")


def _packet_batches(packets: Packets, *rows_of_metrics: MetricRow) -> Batches:
    """The packets as Arrow batches, without a copy; the first row carries the metrics."""
    packets = packets.for_rows()
    targets, ends, data = packets.targets, [0, *packets.ends], pa.py_buffer(packets.data)
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
            "packet": pa.Array.from_buffers(pa.binary(), rows, buffers),
        }
        columns |= {each.column: each.array(rows) for each in rows_of_metrics}
        yield pa.RecordBatch.from_pydict(columns)
        first, rows_of_metrics = last, tuple(each.without_metrics() for each in rows_of_metrics)
