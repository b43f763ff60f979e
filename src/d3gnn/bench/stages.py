"""Where the time of a batch on Spark goes; and what a first start, and a start over lost arrays, take."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

import numpy as np

from d3gnn.bench.models import make_model
from d3gnn.bench.result import BenchResult, Report, silent
from d3gnn.bench.spark import SparkPipeline, SparkRun, bench_session
from d3gnn.bench.throughput import ThroughputSettings
from d3gnn.bench.workload import Workload
from d3gnn.spark.metrics import by_part

#: Batches that go first, until Java is warm.
WARM_UP = 100
TIMED = 40


@dataclass(frozen=True)
class StagesResult(BenchResult):
    """Medians over the timed batches."""

    bench = "stages"
    engine: str
    batch: int
    batch_ms: float
    #: source: what is new, and its plan; planning: Spark's plan of the batch; kernels: inside operators,
    #: where parts that run side by side count once; tasks and rows: the rest of the job, which is scheduling
    #: tasks, Python workers, and rows on their way; commits: Spark's own logs.
    milliseconds: dict[str, float]
    #: From nothing to the end of the first batch: Java, Spark, Python workers, compiled code. None in a
    #: process that has a session already.
    cold_start_s: float | None
    #: The batch after all arrays were lost, which makes them anew from the log; the edges that it has.
    recovery_s: float
    recovered_edges: int


def measure_stages(
    workload: Workload,
    settings: ThroughputSettings | None = None,
    *,
    timed: int = TIMED,
    warm_up: int = WARM_UP,
    on_batches: Report = silent,
) -> StagesResult:
    """Run batches of a workload through Spark, lose the arrays, and run one more."""
    from pyspark.sql import SparkSession

    settings = settings or ThroughputSettings(batch=20_000, parts=2, engine="spark")
    width = workload.schema.width or settings.width
    model = make_model(
        settings.model, [width] + [settings.width] * settings.layers, settings.aggregator, settings.seed
    )
    if workload.events < 3 * settings.batch:
        raise ValueError(
            f"{workload.events:,} events are too few for batches of {settings.batch:,}: at least 3, please"
        )
    cold = SparkSession.getActiveSession() is None
    begun = time.perf_counter()
    kind = (workload.schema, model, settings.parts, settings.partitioner, settings.sink)
    with bench_session() as spark:
        with SparkPipeline(spark, *kind) as first:
            first.feed(islice(workload.batches(settings.batch), 1))
            cold_start = time.perf_counter() - begun
            first.feed(islice(workload.batches(settings.batch), 1, warm_up))
        with SparkPipeline(spark, *kind) as pipeline:
            batches = workload.batches(settings.batch)
            count = min(timed, workload.events // settings.batch - 1)
            progress = pipeline.feed(islice(batches, count), on_batches)
            shutil.rmtree(pipeline.plan.arrays)
            recovery = pipeline.feed(islice(batches, 1))
            with closing(SparkRun(pipeline.plan, model, recovery)) as run:
                recovered = run.stored_edges
    milliseconds = stage_milliseconds(progress)
    return StagesResult(
        settings={
            "workload": workload.name,
            **asdict(settings),
            "model": repr(model),
            "timed": len(progress),
        },
        engine="spark",
        batch=settings.batch,
        batch_ms=round(float(np.median([_total(p) for p in progress])), 1),
        milliseconds={name: round(value, 1) for name, value in milliseconds.items()},
        cold_start_s=round(cold_start, 2) if cold else None,
        recovery_s=round(_total(recovery[0]) / 1e3, 2),
        recovered_edges=recovered,
    )


def stage_milliseconds(progress: Sequence[Any]) -> dict[str, float]:
    """Milliseconds by what they were spent on, medians over batches."""
    found = [_stages(p) for p in progress]
    return {name: float(np.median([stages[name] for stages in found])) for name in found[0]}


def _stages(progress: Any) -> dict[str, float]:
    spent = progress["durationMs"]
    kernels = 0.0
    for name, parts in by_part(progress).items():
        busy = [part["busy_us"] / 1e3 for part in parts]
        # The parts of Vertex 0 run one after the other, behind Partition.
        kernels += sum(busy) if name in ("partition", "vertex-0") else max(busy, default=0.0)
    stages = {
        "source": float(spent.get("latestOffset", 0) + spent.get("getBatch", 0)),
        "planning": float(spent.get("queryPlanning", 0)),
        "kernels": kernels,
        "tasks and rows": max(0.0, spent.get("addBatch", 0) - kernels),
        "commits": float(spent.get("walCommit", 0) + spent.get("commitOffsets", 0)),
    }
    stages["other"] = max(0.0, _total(progress) - sum(stages.values()))
    return stages


def _total(progress: Any) -> float:
    return float(progress["durationMs"]["triggerExecution"])
