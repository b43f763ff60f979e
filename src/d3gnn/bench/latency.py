"""Latency of outputs on Spark while events arrive at a fixed rate (open loop)."""

from __future__ import annotations

import json
import tempfile
import time
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from d3gnn.bench.check import compare_with_forward
from d3gnn.bench.result import BenchResult, OnProgress, no_progress
from d3gnn.bench.settings import check_at_least_one
from d3gnn.bench.spark import SparkPipeline, SparkRun, batch_seconds, bench_session
from d3gnn.bench.workload import Workload
from d3gnn.nn import GNN, GraphSAGE
from d3gnn.runtime.metrics import batch_end, metrics, output_ages, weighted_percentiles
from d3gnn.sources.replay import replay_stream, write_recording
from d3gnn.store.control import command
from d3gnn.types import Doubles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from d3gnn.spark.restarting import RestartingQuery

#: Seconds of the stream for a separate warm-up pipeline, so that the JVM is warm.
WARM_UP = 30.0
#: Seconds between the start of the query and the arrival of the first event.
_HEAD_START = 10.0
#: Empty batches that are timed at the end of the stream.
EMPTY_BATCHES = 30
#: Largest number of rows of the timeline.
_TIMELINE = 60


@dataclass(frozen=True)
class LatencySettings:
    """Settings of the latency benchmark; checked on construction."""

    rate: float = 10_000.0
    seconds: float = 60.0
    parts: int = 2
    partitioner: str = "hdrf"
    layers: int = 2
    width: int = 64
    seed: int = 0
    #: Seconds of warm-up.
    warm_up: float = WARM_UP
    sink: str = "noop"

    def __post_init__(self) -> None:
        for name in ("rate", "seconds"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name}={getattr(self, name)}: must be above 0")
        check_at_least_one(self, "parts", "layers", "width")
        if self.rate * self.seconds < 1:
            raise ValueError(
                f"rate={self.rate}, seconds={self.seconds}: not a single event; increase one of them"
            )

    @property
    def events(self) -> int:
        return int(self.rate * self.seconds)


@dataclass(frozen=True)
class LatencyResult(BenchResult):
    """Measurements of a latency run; every output row counts once.

    The latency of an output row is the time from the arrival of the oldest event that caused it to the end of
    its batch, including the commit.
    """

    bench = "latency"
    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float
    #: Median time of a batch without events, on the final graph.
    empty_batch_ms: float
    #: Growth of the backlog in events per second, as a fraction of the rate; at most 0 if the engine keeps
    #: up.
    backlog_growth: float
    max_relative_error: float | None
    rate: float
    seconds: float
    events: int
    batches: int
    batch_ms_p50: float
    batch_ms_p99: float
    batch_events_p50: float
    outputs: int
    messages_per_edge: float
    vertices: int
    stored_edges: int
    #: Rows over time: second, p50_ms and max_ms of the outputs, and backlog (events not yet processed).
    timeline: list[dict[str, float]]


def measure_latency(
    workload: Workload,
    settings: LatencySettings | None = None,
    *,
    check: bool = True,
    on_events: OnProgress = no_progress,
) -> LatencyResult:
    """Replay a workload into a Spark pipeline at a fixed rate, and measure the latency of its outputs."""
    settings = settings or LatencySettings()
    workload = workload.limited(settings.events)
    width = workload.schema.width or settings.width
    model = GraphSAGE(width, settings.width, settings.layers, seed=settings.seed)
    with tempfile.TemporaryDirectory(prefix="d3gnn-replay-") as folder, bench_session(100_000) as spark:
        recording = Path(folder) / "events.arrow"
        write_recording(_table(workload), recording)
        options = (workload.schema, model, settings.parts, settings.partitioner, settings.sink)
        if settings.warm_up:
            with SparkPipeline(spark, *options) as warm:
                first = min(workload.events, int(settings.rate * settings.warm_up))
                _replay(spark, warm, recording, settings.rate, _start_time(), first).stop()
        with SparkPipeline(spark, *options) as pipeline:
            begin = _start_time()
            run = _replay(spark, pipeline, recording, settings.rate, begin, workload.events, on_events)
            progress = [p for p in run.recentProgress if p["numInputRows"] > 0]
            empty = _empty_batches(run, pipeline)
            run.stop()
            with closing(SparkRun(pipeline.plan, model, progress)) as engine:
                error = compare_with_forward(engine, workload.batches(1 << 16)) if check else None
                return _result(workload, model, settings, engine, begin, empty, error)


def _start_time() -> float:
    return time.time() + _HEAD_START


def _table(workload: Workload) -> pa.Table:
    tables = [batch.to_arrow() for batch in workload.batches(1 << 16)]
    table = pa.concat_tables(tables, promote_options="permissive")
    wanted = [name for name in table.column_names if table[name].null_count < len(table)]
    return table.select(wanted)


def _replay(
    spark: SparkSession, pipeline: SparkPipeline, recording: Path, rate: float, begin: float, events: int,
    on_progress: OnProgress = no_progress,
) -> RestartingQuery:  # fmt: skip
    """Start the query, and wait until it has processed this many events."""
    run = pipeline.start(replay_stream(spark, recording, rate, begin))
    while (done := _processed(run.lastProgress)) < events:
        on_progress(done)
        run.awaitTermination(1.0)
    on_progress(done)
    return run


def _processed(progress: Any) -> int:
    """Events of the recording processed up to the end of this batch."""
    for source in progress["sources"] if progress else []:
        offset = json.loads(source["endOffset"] or "{}")
        if "event" in offset:
            return int(offset["event"])
    return 0


def _empty_batches(run: RestartingQuery, pipeline: SparkPipeline) -> Doubles:
    """Seconds of consecutive batches without events, triggered by ticks."""
    found = []
    for _ in range(EMPTY_BATCHES):
        before = _last_batch(run)
        command(f"{pipeline.gnn.store}/control", "tick")
        deadline = time.monotonic() + 60
        while _last_batch(run) == before:
            if time.monotonic() > deadline or not run.isActive:
                raise RuntimeError(
                    "the query stopped, or did not answer a tick within 60 s"
                ) from run.exception()
            time.sleep(0.005)
        found.append(run.lastProgress)
    return batch_seconds(found)


def _last_batch(run: RestartingQuery) -> int:
    """The id of the last finished batch. Progress of an idle trigger has the id of the next batch."""
    last = [p["batchId"] for p in run.recentProgress[-5:] if p["numInputRows"]]
    return int(last[-1]) if last else -1


def _result(
    workload: Workload, model: GNN, settings: LatencySettings, engine: SparkRun, begin: float, empty: Doubles,
    error: float | None,
) -> LatencyResult:  # fmt: skip
    progress = engine.progress
    ages = [output_ages(p) for p in progress]
    p50, p95, p99 = weighted_percentiles(*_joined(ages), (50, 95, 99))
    processed = np.array([_processed(p) for p in progress])
    ended = np.array([batch_end(p) for p in progress])
    backlog = np.clip((ended - begin) * settings.rate, 0, workload.events) - processed
    arriving = processed < workload.events  # after the last arrival the backlog can only fall
    outputs = [metrics(p)[f"vertex-{settings.layers}"].get("rows", 0) for p in progress]
    times = engine.times * 1e3
    return LatencyResult(
        settings={
            "workload": workload.name,
            "engine": "spark",
            "model": repr(model),
            **asdict(settings),
        },
        p50_ms=round(p50, 1),
        p95_ms=round(p95, 1),
        p99_ms=round(p99, 1),
        max_ms=round(max(float(age.max()) for age, _ in ages if len(age)), 1),
        empty_batch_ms=round(float(np.median(empty)) * 1e3, 1),
        backlog_growth=round(_slope(ended[arriving], backlog[arriving]) / settings.rate, 5),
        max_relative_error=error,
        rate=settings.rate,
        seconds=settings.seconds,
        events=workload.events,
        batches=len(progress),
        batch_ms_p50=round(float(np.percentile(times, 50)), 1),
        batch_ms_p99=round(float(np.percentile(times, 99)), 1),
        batch_events_p50=float(np.median(np.diff(processed, prepend=0))),
        outputs=int(sum(outputs)),
        messages_per_edge=round(engine.messages / max(1, workload.edges()), 2),
        vertices=len(engine),
        stored_edges=engine.stored_edges,
        timeline=_timeline(ages, ended - begin, backlog),
    )


def _slope(x: Doubles, y: Doubles) -> float:
    """Slope of y over x by least squares, without the first fifth (start-up)."""
    skip = len(x) // 5
    x, y = x[skip:], y[skip:]
    return float(np.polyfit(x - x[0], y, 1)[0]) if len(x) > 2 else 0.0


def _joined(ages: list[tuple[Doubles, Doubles]]) -> tuple[Doubles, Doubles]:
    return np.concatenate([age for age, _ in ages]), np.concatenate([weight for _, weight in ages])


def _timeline(
    ages: list[tuple[Doubles, Doubles]], ended: Doubles, backlog: Doubles
) -> list[dict[str, float]]:
    rows = []
    for some in np.array_split(np.arange(len(ages)), min(_TIMELINE, len(ages))):
        age, weight = _joined([ages[i] for i in some])
        if len(age):
            rows.append(
                {
                    "second": round(float(ended[some[-1]]), 2),
                    "p50_ms": round(weighted_percentiles(age, weight, (50,))[0], 1),
                    "max_ms": round(float(age.max()), 1),
                    "backlog": int(backlog[some].max()),
                }
            )
    return rows
