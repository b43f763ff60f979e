"""How long a pipeline on Spark takes from the death of its worker process to fresh output."""

from __future__ import annotations

import os
import signal
import time
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from d3gnn.bench.check import compare_with_forward
from d3gnn.bench.result import BenchResult, OnProgress, no_progress
from d3gnn.bench.settings import check_at_least_one, check_partitioner
from d3gnn.bench.spark import SparkPipeline, SparkRun, bench_session
from d3gnn.bench.workload import Workload
from d3gnn.events import EventBatch
from d3gnn.kernel.mapped_state import MappedPartState
from d3gnn.kernel.operators import PARTITION
from d3gnn.nn import GraphSAGE
from d3gnn.runtime.metrics import batch_begin, batch_end, metrics
from d3gnn.store.graph_log import GraphLog
from d3gnn.store.store import Store

if TYPE_CHECKING:
    from d3gnn.spark.restarting import RestartingQuery

#: How long a batch may take, in seconds.
_PATIENCE = 3600.0
#: How often, in seconds, to look whether the query still runs.
_LOOK = 2.0


@dataclass(frozen=True)
class RecoverySettings:
    """Settings of the recovery benchmark; checked on construction."""

    #: Events in the batches that load the graph, and in the one that is interrupted.
    load: int = 100_000
    batch: int = 20_000
    parts: int = 2
    partitioner: str = "hdrf"
    layers: int = 2
    width: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        check_at_least_one(self, "load", "batch", "parts", "layers", "width")
        check_partitioner(self.partitioner)


@dataclass(frozen=True)
class RecoveryResult(BenchResult):
    """Seconds after a SIGKILL of the worker process in the middle of a batch."""

    bench = "recovery"
    #: Until the batch was committed again, with an output row for every vertex.
    seconds: float
    #: Until the query had started again and its first batch began.
    restart_seconds: float
    #: Of that batch: in the log and Partition, and in all operators behind it.
    partition_seconds: float
    operator_seconds: float
    rows: int
    refreshed: int
    vertices: int
    stored_edges: int
    log_entries: int
    load_seconds: float
    max_relative_error: float | None


def measure_recovery(
    workload: Workload,
    settings: RecoverySettings | None = None,
    *,
    check: bool = True,
    on_events: OnProgress = no_progress,
) -> RecoveryResult:
    """Load all of a workload but its last batch, kill the worker process in that one, and wait for it."""
    settings = settings or RecoverySettings()
    if workload.events <= settings.batch:
        raise ValueError(
            f"batch={settings.batch}: the stream has {workload.events:,} events, which must be more"
        )
    width = workload.schema.width or settings.width
    model = GraphSAGE(width, settings.width, settings.layers, seed=settings.seed)
    options = (workload.schema, model, settings.parts, settings.partitioner)
    first = workload.limited(workload.events - settings.batch)
    with bench_session(100_000) as spark, SparkPipeline(spark, *options) as pipeline:
        begun = time.monotonic()
        loaded = pipeline.feed(first.batches(settings.load), on_events)
        load_seconds = time.monotonic() - begun
        query = pipeline.start(pipeline.files.read(spark))
        try:
            pipeline.files.write(_last_events(workload, settings.batch))
            killed = _kill_in_batch(pipeline, query)
            progress = _first_batch(query)
        finally:
            query.stop()
        with closing(SparkRun(pipeline.plan, model, [*loaded, progress])) as engine:
            error = compare_with_forward(engine, workload.batches(1 << 16)) if check else None
            return _result(workload, settings, engine, progress, killed, load_seconds, error)


def _last_events(workload: Workload, count: int) -> EventBatch:
    last: list[EventBatch] = []
    for batch in workload.batches(count):
        last = [*last[-1:], batch]
    both = EventBatch.concat(last)
    return both.take(slice(len(both) - count, None))


def _kill_in_batch(pipeline: SparkPipeline, query: RestartingQuery) -> float:
    """Kill the process that is in the middle of the next batch; returns when, in seconds since 1970."""
    plan = pipeline.plan
    folder = Path(plan.arrays) / Store(plan.store).owner() / str(PARTITION) / "0"
    state = MappedPartState(folder)
    try:
        inode, deadline = (folder / "header").stat().st_ino, time.monotonic() + _PATIENCE
        look = time.monotonic() + _LOOK
        while not (state.dirty and (worker := _lock_holder(inode))):
            now = time.monotonic()
            if now > look:  # not more often: it takes longer than a small batch
                look = now + _LOOK
                if now > deadline or not query.isActive:
                    raise RuntimeError("no batch has begun") from query.exception()
                if any(progress["numInputRows"] for progress in query.recentProgress):
                    raise RuntimeError(
                        "the batch ended before its worker could be killed: use a larger batch"
                    )
            time.sleep(0.0005)
    finally:
        state.close()
    os.kill(worker, signal.SIGKILL)
    return time.time()


def _lock_holder(inode: int) -> int:
    """The process that has locked a file for itself alone; 0 if none has."""
    for line in Path("/proc/locks").read_text().splitlines():
        fields = line.split()
        if fields[1:4] == ["FLOCK", "ADVISORY", "WRITE"] and fields[5].endswith(f":{inode}"):
            return int(fields[4])
    return 0


def _first_batch(query: RestartingQuery) -> Any:
    """The progress of the first batch with events after a restart."""
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        is_active = query.isActive  # restarts it
        found = [progress for progress in query.recentProgress if progress["numInputRows"]]
        if query.restarted and found:
            return found[0]
        if not is_active:
            raise RuntimeError("the query has ended") from query.exception()
        time.sleep(0.01)
    raise RuntimeError("no batch has ended since the worker was killed")


def _result(
    workload: Workload, settings: RecoverySettings, engine: SparkRun, progress: Any, killed: float,
    load_seconds: float, error: float | None,
) -> RecoveryResult:  # fmt: skip
    found = metrics(progress)
    operators = sum(values["busy_us"] for name, values in found.items() if name != str(PARTITION))
    return RecoveryResult(
        settings={"workload": workload.name, "engine": "spark", "model": repr(engine.model)}
        | asdict(settings),
        seconds=round(batch_end(progress) - killed, 2),
        restart_seconds=round(batch_begin(progress) - killed, 2),
        partition_seconds=round((found[str(PARTITION)]["busy_us"] - operators) / 1e6, 2),
        operator_seconds=round(operators / 1e6, 2),
        rows=found[f"vertex-{settings.layers}"]["rows"],
        refreshed=found[str(PARTITION)]["refreshed"],
        vertices=len(engine),
        stored_edges=engine.stored_edges,
        log_entries=len(GraphLog.open(engine.store).batches(2**62)),
        load_seconds=round(load_seconds, 1),
        max_relative_error=error,
    )
