"""A stream through the pipeline on Spark, as fast as it goes."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from d3gnn.bench.result import Report, silent
from d3gnn.bench.workload import Workload
from d3gnn.events import EventBatch, GraphSchema, IntKeys, Key, Keys
from d3gnn.nn import GNN
from d3gnn.pipeline import StreamingGNN
from d3gnn.spark.event_files import EventFiles
from d3gnn.spark.metrics import metrics
from d3gnn.spark.runtime import Plan, Runtime
from d3gnn.spark.store import Store
from d3gnn.spark.verify import held_embeddings, stored_plan
from d3gnn.types import Floats

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Batches that a pipeline of its own takes in first: Java compiles what it runs often, for a minute.
WARM_UP_BATCHES = 60


class SparkRun:
    """What a pipeline on Spark has done: the times of its batches, its metrics, the embeddings it holds."""

    def __init__(self, plan: Plan, model: GNN, progress: list[Any]) -> None:
        self.model, self.schema, self.parts = model, plan.schema, plan.parts
        self._plan = plan
        self._runtime = Runtime(plan, Store(plan.store).owner())
        batches = [p for p in progress if p["numInputRows"] > 0]
        #: Seconds of each batch that had events, from trigger to commit.
        self.times = np.array([p["durationMs"]["triggerExecution"] for p in batches]) / 1e3
        #: Sums over all batches, by operator and metric.
        self.metrics: dict[str, Counter[str]] = {}
        for batch in batches:
            for name, said in metrics(batch).items():
                self.metrics.setdefault(name, Counter()).update(said)

    def __len__(self) -> int:
        return self._runtime.partition.vertex_count

    def ids(self) -> Keys:
        """The ids of all vertices."""
        return self._runtime.partition.live_ids()

    def embeddings(self, ids: list[Key]) -> Floats:
        """What the pipeline holds of these vertices; NaN where it holds nothing."""
        held = held_embeddings(self._plan, ids)
        missing = np.full(self.model.out_width, np.nan, np.float32)
        return np.stack([held.get(id, missing) for id in ids])

    @property
    def messages(self) -> int:
        return self.total("messages")

    @property
    def recomputed(self) -> int:
        return self.total("recomputed")

    @property
    def bytes_moved(self) -> int:
        return self.total("bytes")

    def total(self, metric: str) -> int:
        """The sum of a metric over all operators."""
        return sum(said[metric] for said in self.metrics.values())

    @property
    def busy_seconds(self) -> float:
        """Time inside operators, where the parts of an operator that run side by side count once."""
        alone = {"partition", "vertex-0"}
        busy = (said["busy_us"] / (1 if name in alone else self.parts) for name, said in self.metrics.items())
        return sum(busy) / 1e6

    @property
    def replication_factor(self) -> float:
        return self._runtime.partition.replication_factor

    @property
    def stored_edges(self) -> int:
        first = self._runtime.operator("edge-1")
        return sum(first.state(part).adjacency.edge_count for part in range(self.parts))

    def memory(self) -> dict[str, int]:
        """Bytes of each operator, over all parts."""
        used = {"partition": self._runtime.partition.space.nbytes}
        for i in range(self._plan.layers + 1):
            for name in [f"edge-{i}"] * (i > 0) + [f"vertex-{i}"]:
                operator = self._runtime.operator(name)
                for part in range(self.parts):
                    operator.state(part)
                used[name] = sum(operator.space(part).nbytes for part in range(self.parts))
        return used


@contextmanager
def run_on_spark(
    workload: Workload, model: GNN, *, batch: int, parts: int, partitioner: str, sink: str, on_events: Report
) -> Iterator[SparkRun]:
    """Run a workload through a pipeline of its own, a file for each batch, when Java is warm."""
    from pyspark.sql import SparkSession

    from d3gnn.spark.session import session

    folder = Path(tempfile.mkdtemp(prefix="d3gnn-bench-"))
    batches = -(-workload.events // batch)
    settings = {"spark.sql.streaming.numRecentProgressUpdates": batches + WARM_UP_BATCHES + 10}
    mine = SparkSession.getActiveSession() is None
    spark = session("local[*]", "d3gnn bench", **settings)
    left: list[str | Path] = [folder]
    try:
        warm = _pipeline(folder / "warm", workload.schema, model, parts, partitioner)
        plan, _ = _run(spark, warm, islice(workload.batches(batch), WARM_UP_BATCHES), sink)
        left.append(plan.arrays)
        gnn = _pipeline(folder / "run", workload.schema, model, parts, partitioner)
        plan, progress = _run(spark, gnn, workload.batches(batch), sink, on_events)
        left.append(plan.arrays)
        yield SparkRun(plan, model, progress)
    finally:
        if mine:
            spark.stop()
        for path in left:
            shutil.rmtree(path, ignore_errors=True)


def _pipeline(folder: Path, schema: GraphSchema, model: GNN, parts: int, partitioner: str) -> StreamingGNN:
    store = folder / "store"
    return StreamingGNN(
        model, name=folder.name, store=store, parts=parts, partitioner=partitioner, schema=schema
    )


def _run(
    spark: SparkSession, gnn: StreamingGNN, batches: Iterator[EventBatch], sink: str, report: Report = silent
) -> tuple[Plan, list[Any]]:
    assert gnn.store is not None
    folder = Path(gnn.store).parent
    files, largest = None, 0
    for batch in batches:
        if files is None:
            ids = "bigint" if isinstance(batch.src, IntKeys) else "string"
            files = EventFiles(folder / "in", ids, _columns(gnn.schema))
        files.write(batch)
        largest = max(largest, len(batch))
    if files is None:
        raise ValueError("the workload has no events")
    output = None if sink == "noop" else folder / "out"
    run = gnn.start(
        files.read(spark),
        output,
        format=sink,
        checkpoint=folder / "checkpoint",
        trigger={"availableNow": True},
    )
    while not run.await_termination(1.0):
        last = run.query.lastProgress
        if last is not None:
            report((last["batchId"] + 1) * largest)
    return stored_plan(gnn.store), list(run.query.recentProgress)


def _columns(schema: GraphSchema) -> list[str]:
    """The columns that events of this schema may have, beyond those that all have."""
    valued = bool(schema.features or schema.edge_features or schema.label_width)
    return ["key"] * (schema.edges == "keyed") + ["feature", "value"] * valued
