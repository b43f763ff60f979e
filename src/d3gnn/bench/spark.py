"""A stream through the pipeline on Spark, as fast as it goes."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from d3gnn.bench.result import Report, silent
from d3gnn.bench.workload import Workload
from d3gnn.events import EventBatch, GraphSchema, IntKeys, Key, Keys, StringKeys, keys_of
from d3gnn.nn import GNN
from d3gnn.pipeline import StreamingGNN
from d3gnn.spark.event_files import EventFiles
from d3gnn.spark.metrics import by_part, metrics
from d3gnn.spark.runtime import Plan, Runtime
from d3gnn.spark.store import Store
from d3gnn.spark.supervise import Supervised
from d3gnn.spark.verify import held, stored_plan
from d3gnn.types import Doubles, Floats

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Batches that a pipeline of its own takes in first, and how large they are at most: Java compiles what it
#: runs often, and what it runs more often once more and better.
WARM_UP_BATCHES = 120
WARM_UP_BATCH = 2000


class SparkRun:
    """What a pipeline on Spark has done: the times of its batches, its metrics, the embeddings it holds."""

    def __init__(self, plan: Plan, model: GNN, progress: list[Any]) -> None:
        self.model, self.schema, self.parts = model, plan.schema, plan.parts
        self._plan = plan
        self._runtime = Runtime(plan, Store(plan.store).owner())
        self.progress = progress
        self.times = batch_seconds(progress)
        #: Sums over all batches, by operator and metric.
        self.metrics: dict[str, Counter[str]] = {}
        for batch in progress:
            for name, said in metrics(batch).items():
                self.metrics.setdefault(name, Counter()).update(said)

    def close(self) -> None:
        """Let go of the pipeline's files."""
        self._runtime.close()

    def __len__(self) -> int:
        return self._runtime.partition.vertex_count

    def ids(self) -> Keys:
        """The ids of all vertices."""
        return self._runtime.partition.live_ids()

    def embeddings(self, ids: Sequence[Key] | Keys) -> Floats:
        """What the pipeline holds of these vertices; NaN where it holds nothing."""
        keys = ids if isinstance(ids, IntKeys | StringKeys) else keys_of(list(ids))
        return held(self._runtime, keys)[0]

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
    def imbalance(self) -> float:
        """Busy time of the busiest part, over the mean of all: of the operators that have parts."""
        busy = np.zeros(self.parts)
        for batch in self.progress:
            for name, parts in by_part(batch).items():
                if name != "partition":
                    for part in parts:
                        busy[part["part"]] += part["busy_us"]
        return float(busy.max() / busy.mean()) if busy.any() else 1.0

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


def batch_seconds(progress: Iterable[Any]) -> Doubles:
    """Seconds of each batch, from trigger to commit."""
    return np.array([p["durationMs"]["triggerExecution"] for p in progress]) / 1e3


@contextmanager
def bench_session(progress: int = 1000) -> Iterator[SparkSession]:
    """A session that remembers the progress of so many batches; the one that there is, if there is one."""
    from pyspark.sql import SparkSession

    from d3gnn.spark.session import session

    mine = SparkSession.getActiveSession() is None
    settings = {"spark.sql.streaming.numRecentProgressUpdates": progress}
    spark = session("local[*]", "d3gnn bench", **settings)
    try:
        yield spark
    finally:
        if mine:
            spark.stop()


class SparkPipeline:
    """A pipeline of its own that is fed some batches, a file for each, then some more."""

    def __init__(
        self, spark: SparkSession, schema: GraphSchema, model: GNN, parts: int, partitioner: str,
        sink: str = "noop",
    ) -> None:  # fmt: skip
        self.folder = Path(tempfile.mkdtemp(prefix="d3gnn-bench-"))
        self.spark, self.model, self.sink = spark, model, sink
        store = self.folder / "store"
        self.gnn = StreamingGNN(
            model, name="bench", store=store, parts=parts, partitioner=partitioner, schema=schema
        )
        self._files: EventFiles | None = None

    def __enter__(self) -> SparkPipeline:
        return self

    def __exit__(self, *exc: object) -> None:
        with suppress(FileNotFoundError):  # it was not fed yet
            for path in (self.plan.arrays, self.plan.large):
                shutil.rmtree(path, ignore_errors=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def plan(self) -> Plan:
        return stored_plan(str(self.gnn.store))

    def feed(self, batches: Iterable[EventBatch], report: Report = silent) -> list[Any]:
        """Run the batches through; Spark's progress of each that had events."""
        files = self._files
        for batch in batches:
            if files is None:
                ids = "bigint" if isinstance(batch.src, IntKeys) else "string"
                files = self._files = EventFiles(self.folder / "in", ids, _columns(self.gnn.schema))
            files.write(batch)
        if files is None:
            raise ValueError("the workload has no events")
        return self.run(files.read(self.spark), report)

    def run(self, events: DataFrame, report: Report = silent) -> list[Any]:
        """Run all that there is of a stream through; Spark's progress of each batch that had events."""
        run = self.start(events, {"availableNow": True})
        while not run.await_termination(1.0):
            report(sum(p["numInputRows"] for p in run.query.recentProgress))
        return _with_events(run.query.recentProgress)

    def start(self, events: DataFrame, trigger: dict[str, Any] | None = None) -> Supervised:
        output = None if self.sink == "noop" else self.folder / "out"
        return self.gnn.start(
            events, output, format=self.sink, checkpoint=self.folder / "checkpoint", trigger=trigger
        )


@contextmanager
def run_on_spark(
    workload: Workload, model: GNN, *, batch: int, parts: int, partitioner: str, sink: str, on_events: Report
) -> Iterator[SparkRun]:
    """Run a workload through a pipeline of its own, when Java is warm."""
    batches = -(-workload.events // batch)
    with bench_session(batches + WARM_UP_BATCHES + 10) as spark:
        kind = (workload.schema, model, parts, partitioner, sink)
        with SparkPipeline(spark, *kind) as warm:
            warm.feed(islice(workload.batches(min(batch, WARM_UP_BATCH)), WARM_UP_BATCHES))
        with SparkPipeline(spark, *kind) as pipeline:
            progress = pipeline.feed(workload.batches(batch), on_events)
            with closing(SparkRun(pipeline.plan, model, progress)) as run:
                yield run


def _with_events(progress: Iterable[Any]) -> list[Any]:
    return [p for p in progress if p["numInputRows"] > 0]


def _columns(schema: GraphSchema) -> list[str]:
    """The columns that events of this schema may have, beyond those that all have."""
    valued = bool(schema.features or schema.edge_features or schema.label_width)
    return ["key"] * (schema.edges == "keyed") + ["feature", "value"] * valued
