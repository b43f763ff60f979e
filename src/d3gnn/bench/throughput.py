"""Throughput of an engine on a stream, and the error of its embeddings at the end."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Protocol

import numpy as np

from d3gnn.bench.check import Engine, compare
from d3gnn.bench.models import make_model
from d3gnn.bench.result import BenchResult, OnProgress, no_progress
from d3gnn.bench.settings import check_at_least_one, check_partitioner
from d3gnn.bench.warm_up import warm_up
from d3gnn.bench.workload import Workload
from d3gnn.events import EventBatch
from d3gnn.nn import GNN
from d3gnn.runtime.local import LocalEngine

ENGINES = ("local", "spark")
SINKS = ("noop", "parquet")
#: Batch size for the oracle if the events are in order: the result is the same, and larger batches are
#: faster.
_CHECK_BATCH = 50_000


@dataclass(frozen=True)
class ThroughputSettings:
    """Settings of the throughput benchmark; checked on construction.

    The model has `layers` layers of one kind, all `width` wide.
    """

    batch: int = 2000
    parts: int = 1
    engine: str = "local"
    partitioner: str = "hdrf"
    layers: int = 2
    width: int = 64
    #: None for the default of the model.
    aggregator: str | None = None
    threads: int = 1
    seed: int = 0
    #: The sink of the Spark query: `noop` drops all rows, `parquet` writes a table.
    sink: str = "noop"
    model: str = "sage"

    def __post_init__(self) -> None:
        check_at_least_one(self, "batch", "parts", "layers", "width", "threads")
        if self.engine not in ENGINES:
            raise ValueError(f"engine={self.engine!r}: choose one of {', '.join(ENGINES)}")
        if self.sink not in SINKS:
            raise ValueError(f"sink={self.sink!r}: choose one of {', '.join(SINKS)}")
        check_partitioner(self.partitioner)
        make_model(self.model, [1, 1], self.aggregator)  # raises ValueError for a wrong name or aggregator


@dataclass(frozen=True)
class ThroughputResult(BenchResult):
    """Measurements of a throughput run.

    Times are those of `LocalEngine.apply`, or of Spark's batches from trigger to commit. They exclude
    start-up and the generation of events.
    """

    bench = "throughput"
    #: Edges created and deleted, per second.
    edges_per_second: float
    batch_ms_p50: float
    batch_ms_p99: float
    #: Median in each tenth of the stream; it rises if batches take longer as the graph grows.
    batch_ms_by_tenth: list[float]
    #: Time inside operators, as a fraction of the total.
    kernel_share: float
    #: Messages sent along edges in all layers, per edge created or deleted.
    messages_per_edge: float
    #: Bytes sent between operators.
    bytes_moved: int
    replication_factor: float
    #: Busy time of the busiest part divided by the mean; None for LocalEngine with one part.
    imbalance: float | None
    #: Largest relative error against recomputation from scratch; None if not checked.
    max_relative_error: float | None
    events: int
    vertices: int
    engine: str
    batch: int
    parts: int
    partitioner: str
    threads: int
    seconds: float
    events_per_second: float
    batches: int
    stored_edges: int
    #: How many times a part recomputed its touched vertices because that was cheaper, over all layers and
    #: batches.
    recomputed: int
    #: Allocated bytes of each operator, divided by the edges and by the vertices at the end of the stream.
    bytes_per_edge: dict[str, float]
    bytes_per_vertex: dict[str, float]


def measure_throughput(
    workload: Workload,
    settings: ThroughputSettings | None = None,
    *,
    check: bool = True,
    on_events: OnProgress = no_progress,
    on_check: OnProgress = no_progress,
) -> ThroughputResult:
    """Run a workload through a new engine, batch by batch, at full speed."""
    import torch

    settings = settings or ThroughputSettings()
    torch.set_num_threads(settings.threads)
    in_width = workload.schema.width or settings.width
    widths = [in_width] + [settings.width] * settings.layers
    model = make_model(settings.model, widths, settings.aggregator, settings.seed)
    engine: Measured
    with ExitStack() as stack:
        if settings.engine == "spark":
            from d3gnn.bench.spark import run_on_spark

            engine = stack.enter_context(
                run_on_spark(
                    workload, model, batch=settings.batch, parts=settings.parts, sink=settings.sink,
                    partitioner=settings.partitioner, on_events=on_events,
                )
            )  # fmt: skip
        else:
            engine = _run_locally(workload, model, settings, on_events)
        error = None
        if check:
            error = compare(engine, oracle_batches(workload, settings.batch), on_check).max_relative_error
        return _result(workload, settings, engine, error)


class Measured(Engine, Protocol):
    """The measurements of a finished run, on any engine."""

    #: Seconds of each batch.
    times: np.ndarray

    @property
    def busy_seconds(self) -> float: ...
    @property
    def messages(self) -> int: ...
    @property
    def bytes_moved(self) -> int: ...
    @property
    def replication_factor(self) -> float: ...
    @property
    def imbalance(self) -> float | None: ...
    @property
    def stored_edges(self) -> int: ...
    @property
    def recomputed(self) -> int: ...
    def memory(self) -> dict[str, int]: ...


class LocalRun:
    """The measurements of a finished run through a `LocalEngine`."""

    def __init__(self, engine: LocalEngine, times: list[float]) -> None:
        self._engine, self.times = engine, np.array(times)
        self.model, self.schema = engine.model, engine.schema
        self.ids, self.embeddings, self.memory = engine.ids, engine.embeddings, engine.memory

    def __len__(self) -> int:
        return len(self._engine)

    @property
    def busy_seconds(self) -> float:
        return sum(value for name, value in self._engine.metrics.items() if name.endswith("_us")) / 1e6

    @property
    def messages(self) -> int:
        return messages(self._engine)

    @property
    def bytes_moved(self) -> int:
        return self._engine.metrics["bytes"]

    @property
    def replication_factor(self) -> float:
        return self._engine.partition.replication_factor

    @property
    def imbalance(self) -> float | None:
        return self._engine.imbalance if self._engine.parts > 1 else None

    @property
    def stored_edges(self) -> int:
        return stored_edges(self._engine)

    @property
    def recomputed(self) -> int:
        return sum(edge.metrics["recomputed"] for edge in self._engine.edges)


def _run_locally(
    workload: Workload, model: GNN, settings: ThroughputSettings, on_events: OnProgress
) -> LocalRun:
    sample = islice(workload.batches(min(settings.batch, 1000)), 3)
    warm_up(model, workload.schema, settings.parts, settings.partitioner, sample)
    engine = LocalEngine(
        model, parts=settings.parts, partitioner=settings.partitioner, schema=workload.schema
    )
    # The garbage collector must not scan the objects of torch and numba during the timed part.
    gc.collect()
    gc.freeze()
    times: list[float] = []
    events = 0
    try:
        for batch in workload.batches(settings.batch):
            start = time.perf_counter()
            engine.apply(batch)
            times.append(time.perf_counter() - start)
            events += len(batch)
            on_events(events)
    finally:
        # The process may continue: its garbage must be collected again, above all open files.
        gc.unfreeze()
    return LocalRun(engine, times)


def oracle_batches(workload: Workload, batch: int) -> Iterator[EventBatch]:
    """The workload in the largest batches that give the oracle the same final graph."""
    return workload.batches(max(batch, _CHECK_BATCH) if workload.in_order else batch)


def _result(
    workload: Workload, settings: ThroughputSettings, engine: Measured, error: float | None
) -> ThroughputResult:
    times, edges = engine.times, workload.edges()
    seconds, events = float(times.sum()), workload.events
    vertices, stored, memory = len(engine), engine.stored_edges, engine.memory()
    return ThroughputResult(
        settings={
            "workload": workload.name,
            "edges": workload.schema.edges,
            "directed": workload.schema.directed,
            **asdict(settings),
            "model": repr(engine.model),
        },
        edges_per_second=round(edges / seconds, 1) if seconds else 0.0,
        batch_ms_p50=round(float(np.percentile(times, 50)) * 1e3, 4),
        batch_ms_p99=round(float(np.percentile(times, 99)) * 1e3, 4),
        batch_ms_by_tenth=[
            round(float(np.median(tenth)) * 1e3, 4) for tenth in np.array_split(times, 10) if len(tenth)
        ],
        kernel_share=round(engine.busy_seconds / seconds, 4) if seconds else 0.0,
        messages_per_edge=round(engine.messages / max(1, edges), 2),
        bytes_moved=engine.bytes_moved,
        replication_factor=round(engine.replication_factor, 4),
        imbalance=None if engine.imbalance is None else round(engine.imbalance, 4),
        max_relative_error=error,
        events=events,
        vertices=vertices,
        engine=settings.engine,
        batch=settings.batch,
        parts=settings.parts,
        partitioner=settings.partitioner,
        threads=settings.threads,
        seconds=round(seconds, 3),
        events_per_second=round(events / seconds, 1) if seconds else 0.0,
        batches=len(times),
        stored_edges=stored,
        recomputed=engine.recomputed,
        bytes_per_edge={name: round(size / max(1, stored), 1) for name, size in memory.items()},
        bytes_per_vertex={name: round(size / max(1, vertices), 1) for name, size in memory.items()},
    )


def messages(engine: LocalEngine) -> int:
    """Messages sent along edges so far, in all layers."""
    return sum(int(edge.metrics["messages"]) for edge in engine.edges)


def stored_edges(engine: LocalEngine) -> int:
    """Current number of directed edges; an undirected edge counts twice."""
    first = engine.edges[0]
    return sum(int(first.state(part).adjacency.edge_count) for part in range(engine.parts))
