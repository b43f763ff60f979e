"""How fast an engine takes in a stream, and whether it ends where it should."""

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
from d3gnn.bench.result import BenchResult, Report, silent
from d3gnn.bench.settings import at_least_one, known_partitioner
from d3gnn.bench.warm_up import warm_up
from d3gnn.bench.workload import Workload
from d3gnn.events import EventBatch
from d3gnn.kernel.local import LocalEngine
from d3gnn.nn import GNN

ENGINES = ("local", "spark")
SINKS = ("noop", "parquet")
#: The oracle takes events that are in order in batches of this size: it ends the same, and sooner.
_CHECK_BATCH = 50_000


@dataclass(frozen=True)
class ThroughputSettings:
    """What runs the stream: a model of `layers` layers of one kind, all `width` wide; checked when made."""

    batch: int = 2000
    parts: int = 1
    engine: str = "local"
    partitioner: str = "hdrf"
    layers: int = 2
    width: int = 64
    #: As is usual for the model, unless given.
    aggregator: str | None = None
    threads: int = 1
    seed: int = 0
    #: Where Spark writes embeddings: nowhere, or into a table.
    sink: str = "noop"
    model: str = "sage"

    def __post_init__(self) -> None:
        at_least_one(self, "batch", "parts", "layers", "width", "threads")
        if self.engine not in ENGINES:
            raise ValueError(f"engine={self.engine!r}: choose one of {', '.join(ENGINES)}")
        if self.sink not in SINKS:
            raise ValueError(f"sink={self.sink!r}: choose one of {', '.join(SINKS)}")
        known_partitioner(self.partitioner)
        make_model(self.model, [1, 1], self.aggregator)  # says what is wrong with it


@dataclass(frozen=True)
class ThroughputResult(BenchResult):
    """What came of it. Times are those of `LocalEngine.apply`, or of Spark's batches from trigger to commit;
    making the events and starting up come before.
    """

    bench = "throughput"
    #: Edges created and deleted, per second.
    edges_per_second: float
    batch_ms_p50: float
    batch_ms_p99: float
    #: Median in each tenth of the stream: whether batches take longer as the graph grows.
    batch_ms_by_tenth: list[float]
    #: Time inside operators, as a share of the whole.
    kernel_share: float
    #: Messages that travelled along edges in all layers, per edge created or deleted.
    messages_per_edge: float
    #: Bytes that operators handed to one another.
    bytes_moved: int
    replication_factor: float
    #: Busy time of the busiest part over the mean; None for a single part in one process.
    imbalance: float | None
    #: Against recomputation from scratch; None if it was not checked.
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
    #: How often a part found it cheaper to recompute the touched vertices, over all layers and batches.
    recomputed: int
    #: Bytes set aside by each operator, divided by the edges and by the vertices that there are at the end.
    bytes_per_edge: dict[str, float]
    bytes_per_vertex: dict[str, float]


def measure_throughput(
    workload: Workload,
    settings: ThroughputSettings | None = None,
    *,
    check: bool = True,
    on_events: Report = silent,
    on_check: Report = silent,
) -> ThroughputResult:
    """Run a workload through a new engine, batch by batch, as fast as it goes."""
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
            error = compare(engine, for_the_oracle(workload, settings.batch), on_check).max_relative_error
        return _result(workload, settings, engine, error)


class Measured(Engine, Protocol):
    """What a run through an engine leaves behind."""

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
    """What a run through a `LocalEngine` leaves behind."""

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


def _run_locally(workload: Workload, model: GNN, settings: ThroughputSettings, on_events: Report) -> LocalRun:
    sample = islice(workload.batches(min(settings.batch, 1000)), 3)
    warm_up(model, workload.schema, settings.parts, settings.partitioner, sample)
    engine = LocalEngine(model, settings.parts, settings.partitioner, workload.schema)
    # What torch and numba have left on the heap is not the engine's: the collector need not look at it.
    gc.collect()
    gc.freeze()
    times: list[float] = []
    events = 0
    try:
        for batch in workload.batches(settings.batch):
            begun = time.perf_counter()
            engine.apply(batch)
            times.append(time.perf_counter() - begun)
            events += len(batch)
            on_events(events)
    finally:
        # Whoever goes on in this process wants its garbage collected, the files that it holds open above all.
        gc.unfreeze()
    return LocalRun(engine, times)


def for_the_oracle(workload: Workload, batch: int) -> Iterator[EventBatch]:
    """The workload in batches with which the oracle ends at the same graph."""
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
    """Messages that travelled along edges so far, in all layers."""
    return sum(int(edge.metrics["messages"]) for edge in engine.edges)


def stored_edges(engine: LocalEngine) -> int:
    """Edges that the graph has now; an undirected one counts twice, as it carries messages both ways."""
    first = engine.edges[0]
    return sum(int(first.state(part).adjacency.edge_count) for part in range(engine.parts))
