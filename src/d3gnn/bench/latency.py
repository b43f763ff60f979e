"""How old outputs are when they come out, under events that arrive at a given rate, ready or not."""

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
from d3gnn.bench.result import BenchResult, Report, silent
from d3gnn.bench.settings import at_least_one
from d3gnn.bench.spark import SparkPipeline, SparkRun, batch_seconds, bench_session
from d3gnn.bench.workload import Workload
from d3gnn.nn import GNN, GraphSAGE
from d3gnn.spark.control import command
from d3gnn.spark.metrics import batch_end, metrics, output_ages, weighted_percentiles
from d3gnn.spark.replay import replay_stream, write_recording
from d3gnn.types import Doubles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from d3gnn.spark.supervise import Supervised

#: Seconds of the stream that a pipeline of its own takes in first, while Java compiles.
WARM_UP = 30.0
#: Seconds that a query gets to start before the first event arrives.
_HEAD_START = 10.0
#: Empty batches that are timed at the end, on the graph as it is then.
EMPTY_BATCHES = 30
#: The rows of the timeline.
_TIMELINE = 60


@dataclass(frozen=True)
class LatencySettings:
    """What runs the stream; checked when made."""

    rate: float = 10_000.0
    seconds: float = 60.0
    parts: int = 2
    partitioner: str = "hdrf"
    layers: int = 2
    width: int = 64
    seed: int = 0
    #: Seconds of warming up.
    warm_up: float = WARM_UP
    sink: str = "noop"

    def __post_init__(self) -> None:
        for name in ("rate", "seconds"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name}={getattr(self, name)}: more than 0, please")
        at_least_one(self, "parts", "layers", "width")
        if self.rate * self.seconds < 1:
            raise ValueError(f"{self.rate} events/s for {self.seconds} s is not a single event: ask for more")

    @property
    def events(self) -> int:
        return int(self.rate * self.seconds)


@dataclass(frozen=True)
class LatencyResult(BenchResult):
    """Latency is from the arrival of the oldest event behind an output to the end of its batch, commit and
    all; every row that comes out counts as one output.
    """

    bench = "latency"
    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float
    #: A batch that nothing happens in, on the same graph, median.
    empty_batch_ms: float
    #: Events per second by which those that wait became more, as a share of the rate; 0 or less is fine.
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
    #: Over time: second, p50_ms and max_ms of the outputs, backlog (events that wait).
    timeline: list[dict[str, float]]


def measure_latency(
    workload: Workload,
    settings: LatencySettings | None = None,
    *,
    check: bool = True,
    on_events: Report = silent,
) -> LatencyResult:
    """Offer a workload to a pipeline on Spark, at a rate, and see when its outputs come out."""
    settings = settings or LatencySettings()
    workload = workload.limited(settings.events)
    width = workload.schema.width or settings.width
    model = GraphSAGE([width] + [settings.width] * settings.layers, seed=settings.seed)
    with tempfile.TemporaryDirectory(prefix="d3gnn-replay-") as folder, bench_session(100_000) as spark:
        recording = Path(folder) / "events.arrow"
        write_recording(_table(workload), recording)
        kind = (workload.schema, model, settings.parts, settings.partitioner, settings.sink)
        if settings.warm_up:
            with SparkPipeline(spark, *kind) as warm:
                some = min(workload.events, int(settings.rate * settings.warm_up))
                _offer(spark, warm, recording, settings.rate, _soon(), some).stop()
        with SparkPipeline(spark, *kind) as pipeline:
            begin = _soon()
            run = _offer(spark, pipeline, recording, settings.rate, begin, workload.events, on_events)
            progress = [p for p in run.query.recentProgress if p["numInputRows"] > 0]
            empty = _empty_batches(run, pipeline)
            run.stop()
            with closing(SparkRun(pipeline.plan, model, progress)) as engine:
                error = compare_with_forward(engine, workload.batches(1 << 16)) if check else None
                return _result(workload, model, settings, engine, begin, empty, error)


def _soon() -> float:
    return time.time() + _HEAD_START


def _table(workload: Workload) -> pa.Table:
    tables = [batch.to_arrow() for batch in workload.batches(1 << 16)]
    table = pa.concat_tables(tables, promote_options="permissive")
    wanted = [name for name in table.column_names if table[name].null_count < len(table)]
    return table.select(wanted)


def _offer(
    spark: SparkSession, pipeline: SparkPipeline, recording: Path, rate: float, begin: float, events: int,
    report: Report = silent,
) -> Supervised:  # fmt: skip
    """Start the query, and wait until it has taken in so many events."""
    run = pipeline.start(replay_stream(spark, recording, rate, begin))
    while (done := _taken_in(run.query.lastProgress)) < events:
        report(done)
        run.await_termination(1.0)
    report(done)
    return run


def _taken_in(progress: Any) -> int:
    """How many events of the recording the batches up to this one have taken in."""
    for source in progress["sources"] if progress else []:
        offset = json.loads(source["endOffset"] or "{}")
        if "event" in offset:
            return int(offset["event"])
    return 0


def _empty_batches(run: Supervised, pipeline: SparkPipeline) -> Doubles:
    """Seconds of batches in which nothing happens, one after the other."""
    found = []
    for _ in range(EMPTY_BATCHES):
        before = _last_batch(run)
        command(f"{pipeline.gnn.store}/control", "tick")
        deadline = time.monotonic() + 60
        while _last_batch(run) == before:
            if time.monotonic() > deadline or not run.query.isActive:
                raise RuntimeError("the query takes no commands any more") from run.query.exception()
            time.sleep(0.005)
        found.append(run.query.lastProgress)
    return batch_seconds(found)


def _last_batch(run: Supervised) -> int:
    """The number of the last batch that was; progress without a batch has the number of the next."""
    last = [p["batchId"] for p in run.query.recentProgress[-5:] if p["numInputRows"]]
    return int(last[-1]) if last else -1


def _result(
    workload: Workload, model: GNN, settings: LatencySettings, engine: SparkRun, begin: float, empty: Doubles,
    error: float | None,
) -> LatencyResult:  # fmt: skip
    progress = engine.progress
    ages = [output_ages(p) for p in progress]
    p50, p95, p99 = weighted_percentiles(*_joined(ages), (50, 95, 99))
    taken = np.array([_taken_in(p) for p in progress])
    ended = np.array([batch_end(p) for p in progress])
    waiting = np.clip((ended - begin) * settings.rate, 0, workload.events) - taken
    offered = taken < workload.events  # later, the backlog can only fall
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
        backlog_growth=round(_slope(ended[offered], waiting[offered]) / settings.rate, 5),
        max_relative_error=error,
        rate=settings.rate,
        seconds=settings.seconds,
        events=workload.events,
        batches=len(progress),
        batch_ms_p50=round(float(np.percentile(times, 50)), 1),
        batch_ms_p99=round(float(np.percentile(times, 99)), 1),
        batch_events_p50=float(np.median(np.diff(taken, prepend=0))),
        outputs=int(sum(outputs)),
        messages_per_edge=round(engine.messages / max(1, workload.edges()), 2),
        vertices=len(engine),
        stored_edges=engine.stored_edges,
        timeline=_timeline(ages, ended - begin, waiting),
    )


def _slope(x: Doubles, y: Doubles) -> float:
    """How fast y grows with x, by least squares; the first fifth is left out, in which everything starts."""
    skip = len(x) // 5
    x, y = x[skip:], y[skip:]
    return float(np.polyfit(x - x[0], y, 1)[0]) if len(x) > 2 else 0.0


def _joined(ages: list[tuple[Doubles, Doubles]]) -> tuple[Doubles, Doubles]:
    return np.concatenate([age for age, _ in ages]), np.concatenate([weight for _, weight in ages])


def _timeline(
    ages: list[tuple[Doubles, Doubles]], ended: Doubles, waiting: Doubles
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
                    "backlog": int(waiting[some].max()),
                }
            )
    return rows
