"""Where the time of a batch on Spark goes; time of a cold start, and of a rebuild after losing state."""

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
from d3gnn.bench.result import BenchResult, OnProgress, no_progress
from d3gnn.bench.spark import SparkPipeline, SparkRun, bench_session
from d3gnn.bench.throughput import ThroughputSettings
from d3gnn.bench.workload import Workload
from d3gnn.runtime.metrics import by_part

#: Batches of the warm-up pipeline, until the JVM is warm.
WARM_UP = 100
TIMED = 40


@dataclass(frozen=True)
class StagesResult(BenchResult):
    """Medians over the timed batches."""

    bench = "stages"
    engine: str
    batch: int
    batch_ms: float
    #: source: listing and planning new files; planning: Spark's query planning; kernels: time in operators,
    #: where parallel parts count once; tasks and rows: the rest of the job, which is task scheduling, Python
    #: workers and row transfer; commits: Spark's own logs.
    milliseconds: dict[str, float]
    #: From a process without a JVM to the end of the first batch: JVM, Spark, Python workers, loading
    #: compiled code. None if the process has a Spark session already.
    cold_start_s: float | None
    #: Time of the batch after all arrays were deleted, which rebuilds them from the graph log; edges rebuilt.
    recovery_s: float
    recovered_edges: int


def measure_stages(
    workload: Workload,
    settings: ThroughputSettings | None = None,
    *,
    timed: int = TIMED,
    warm_up: int = WARM_UP,
    on_batches: OnProgress = no_progress,
) -> StagesResult:
    """Run batches of a workload through Spark, delete the arrays, and run one more batch."""
    from pyspark.sql import SparkSession

    settings = settings or ThroughputSettings(batch=20_000, parts=2, engine="spark")
    width = workload.schema.width or settings.width
    model = make_model(
        settings.model, [width] + [settings.width] * settings.layers, settings.aggregator, settings.seed
    )
    if workload.events < 3 * settings.batch:
        raise ValueError(
            f"{workload.events:,} events are too few: at least 3 batches of {settings.batch:,} are needed"
        )
    cold = SparkSession.getActiveSession() is None
    start = time.perf_counter()
    options = (workload.schema, model, settings.parts, settings.partitioner, settings.sink)
    with bench_session() as spark:
        with SparkPipeline(spark, *options) as first:
            first.feed(islice(workload.batches(settings.batch), 1))
            cold_start = time.perf_counter() - start
            first.feed(islice(workload.batches(settings.batch), 1, warm_up))
        with SparkPipeline(spark, *options) as pipeline:
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
    """Median milliseconds of each stage of a batch."""
    by_batch = [_stages(p) for p in progress]
    return {name: float(np.median([stages[name] for stages in by_batch])) for name in by_batch[0]}


def _stages(progress: Any) -> dict[str, float]:
    spent = progress["durationMs"]
    kernels = 0.0
    for name, parts in by_part(progress).items():
        busy = [part["busy_us"] / 1e3 for part in parts]
        # The parts of Vertex 0 run sequentially, in the task of Partition.
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
