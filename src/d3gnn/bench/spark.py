"""Run a workload through a Spark pipeline, and read its metrics and state."""

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

from d3gnn.bench.result import OnProgress, no_progress
from d3gnn.bench.workload import Workload
from d3gnn.events import EventBatch, GraphSchema, Key
from d3gnn.events.keys import IntKeys, Keys, StringKeys, keys_of
from d3gnn.kernel.adjacency import Adjacency, peek_edge_count
from d3gnn.kernel.operators import OperatorId
from d3gnn.kernel.operators.sharing import ADJACENCIES
from d3gnn.nn import GNN
from d3gnn.pipeline import StreamingGNN
from d3gnn.runtime.metrics import by_part, metrics
from d3gnn.runtime.plan import Plan
from d3gnn.runtime.verify import held, stored_plan
from d3gnn.runtime.worker import Worker
from d3gnn.sources.event_files import EventFiles
from d3gnn.spark.restarting import RestartingQuery
from d3gnn.store.store import Store
from d3gnn.types import Doubles, Floats

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Batches of a separate warm-up pipeline, and their largest size. The JIT compiler of the JVM needs many
#: batches until all hot code is optimised.
WARM_UP_BATCHES = 120
WARM_UP_BATCH = 2000


class SparkRun:
    """A finished run on Spark: batch times, metrics, and the embeddings in its state."""

    def __init__(self, plan: Plan, model: GNN, progress: list[Any]) -> None:
        self.model, self.schema, self.parts = model, plan.config.schema, plan.parts
        self._plan, self.store = plan, plan.store
        self._runtime = Worker(plan, Store(plan.store).owner())
        self.progress = progress
        self.times = batch_seconds(progress)
        #: Sums over all batches, by operator and metric.
        self.metrics: dict[str, Counter[str]] = {}
        for batch in progress:
            for name, values in metrics(batch).items():
                self.metrics.setdefault(name, Counter()).update(values)

    def close(self) -> None:
        """Close the state files of the pipeline."""
        self._runtime.close()

    def __len__(self) -> int:
        return self._runtime.partition.vertex_count

    def ids(self) -> Keys:
        """The ids of all vertices."""
        return self._runtime.partition.live_ids()

    def embeddings(self, ids: Sequence[Key] | Keys) -> Floats:
        """The embeddings of these vertices in the state of the pipeline; NaN where there is none."""
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
        return sum(values[metric] for values in self.metrics.values())

    @property
    def imbalance(self) -> float:
        """Busy time of the busiest part divided by the mean, over the operators that have parts."""
        busy = np.zeros(self.parts)
        for batch in self.progress:
            for name, parts in by_part(batch).items():
                if name != "partition":
                    for part in parts:
                        busy[part["part"]] += part["busy_us"]
        return float(busy.max() / busy.mean()) if busy.any() else 1.0

    @property
    def busy_seconds(self) -> float:
        """Time inside operators; parts that run in parallel count once."""
        sequential = {"partition", "vertex-0"}
        busy = (
            values["busy_us"] / (1 if name in sequential else self.parts)
            for name, values in self.metrics.items()
        )
        return sum(busy) / 1e6

    @property
    def replication_factor(self) -> float:
        return self._runtime.partition.replication_factor

    @property
    def stored_edges(self) -> int:
        counts = [0]
        for id in (*ADJACENCIES.values(), OperatorId("edge", 1)):  # shared in one task, or of each operator
            folders = [self._runtime.state.folder(id, part) for part in range(self.parts)]
            found = [peek_edge_count(folder) for folder in folders]
            counts.append(sum(found))
        return max(counts)

    def memory(self) -> dict[str, int]:
        """Allocated bytes of each operator, summed over parts."""
        used = {"partition": self._runtime.partition.part_state.nbytes}
        for id in self._plan.chain.operators:
            operator = self._runtime.operator(id)
            for part in range(self.parts):
                operator.state(part)
            used[str(id)] = sum(operator.part_state(part).nbytes for part in range(self.parts))
        for id in ADJACENCIES.values():
            if any(peek_edge_count(self._runtime.state.folder(id, part)) for part in range(self.parts)):
                states = [self._runtime.state.open(id, part) for part in range(self.parts)]
                used[str(id)] = sum(Adjacency(state).part_state.nbytes for state in states)
        return used


def batch_seconds(progress: Iterable[Any]) -> Doubles:
    """Seconds of each batch, from trigger to commit."""
    return np.array([p["durationMs"]["triggerExecution"] for p in progress]) / 1e3


@contextmanager
def bench_session(progress: int = 1000) -> Iterator[SparkSession]:
    """The active session, or a new one that keeps the progress of this many batches."""
    from pyspark.sql import SparkSession

    from d3gnn.spark.session import session

    owned = SparkSession.getActiveSession() is None
    settings = {"spark.sql.streaming.numRecentProgressUpdates": progress}
    spark = session("local[*]", "d3gnn bench", **settings)
    try:
        yield spark
    finally:
        if owned:
            spark.stop()


class SparkPipeline:
    """A temporary pipeline that reads one file per batch; it can be fed several times."""

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
        with suppress(FileNotFoundError):  # no batch has run yet
            for path in (self.plan.arrays, self.plan.large):
                shutil.rmtree(path, ignore_errors=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def plan(self) -> Plan:
        return stored_plan(str(self.gnn.store))

    @property
    def files(self) -> EventFiles:
        """The files that it was fed from."""
        assert self._files is not None, "feed it first"
        return self._files

    def feed(self, batches: Iterable[EventBatch], on_progress: OnProgress = no_progress) -> list[Any]:
        """Process the batches; Spark's progress of each batch that had events."""
        files = self._files
        for batch in batches:
            if files is None:
                ids = "bigint" if isinstance(batch.src, IntKeys) else "string"
                files = self._files = EventFiles(self.folder / "in", ids, _columns(self.gnn.schema))
            files.write(batch)
        if files is None:
            raise ValueError("the workload has no events")
        return self.run(files.read(self.spark), on_progress)

    def run(self, events: DataFrame, on_progress: OnProgress = no_progress) -> list[Any]:
        """Process all available events; Spark's progress of each batch that had events."""
        run = self.start(events, availableNow=True)
        while not run.awaitTermination(1.0):
            on_progress(sum(p["numInputRows"] for p in run.recentProgress))
        return _with_events(run.recentProgress)

    def start(self, events: DataFrame, **trigger: Any) -> RestartingQuery:
        output = None if self.sink == "noop" else self.folder / "out"
        return self.gnn.start(
            events, output, format=self.sink, checkpoint=self.folder / "checkpoint", **trigger
        )


@contextmanager
def run_on_spark(
    workload: Workload,
    model: GNN,
    *,
    batch: int,
    parts: int,
    partitioner: str,
    sink: str,
    on_events: OnProgress,
) -> Iterator[SparkRun]:
    """Run a workload through a new pipeline, after a warm-up pipeline."""
    batches = -(-workload.events // batch)
    with bench_session(batches + WARM_UP_BATCHES + 10) as spark:
        options = (workload.schema, model, parts, partitioner, sink)
        with SparkPipeline(spark, *options) as warm:
            warm.feed(islice(workload.batches(min(batch, WARM_UP_BATCH)), WARM_UP_BATCHES))
        with SparkPipeline(spark, *options) as pipeline:
            progress = pipeline.feed(workload.batches(batch), on_events)
            with closing(SparkRun(pipeline.plan, model, progress)) as run:
                yield run


def _with_events(progress: Iterable[Any]) -> list[Any]:
    return [p for p in progress if p["numInputRows"] > 0]


def _columns(schema: GraphSchema) -> list[str]:
    """The optional event columns that this schema needs."""
    valued = bool(schema.features or schema.edge_features or schema.label_width)
    return ["key"] * (schema.edges == "keyed") + ["feature", "value"] * valued
