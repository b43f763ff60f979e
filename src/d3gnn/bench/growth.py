"""Time of a batch by the size of the stored graph: the same batches, graphs with the same degrees."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from d3gnn.bench.models import make_model
from d3gnn.bench.result import BenchResult, OnProgress, no_progress
from d3gnn.bench.throughput import ThroughputSettings, messages
from d3gnn.bench.warm_up import warm_up
from d3gnn.events import EventBatch
from d3gnn.nn import GNN
from d3gnn.runtime.local import LocalEngine
from d3gnn.sources import SyntheticStream
from d3gnn.sources.rebatch import rebatch
from d3gnn.sources.synthetic import Shape

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Timed batches at each size, and the number of rounds that they are divided into.
TIMED = 40
ROUNDS = 5
#: Events in a batch while a pipeline on Spark is filled.
_LOAD = 5_000_000
#: Edges per vertex of streams without capped degrees.
_EDGES_EACH = 10


@dataclass(frozen=True)
class GrowthResult(BenchResult):
    """Median time of a batch by the number of edges stored before it."""

    bench = "growth"
    #: One row per size: stored_edges, vertices, batch_ms_p50, messages_per_edge, rows_per_edge,
    #: us_per_message, us_per_row (of the median batch), operator_ms (medians).
    sizes: list[dict[str, Any]]
    #: Batch time at the last size divided by that at the first; the last size divided by the first.
    ratio: float
    growth: float
    #: The same ratio for each round; a wide spread means that other processes disturbed the measurement.
    ratio_by_round: list[float]


class _Subject(ABC):
    """An engine filled to one size."""

    #: Batches at the beginning of each round that are not timed.
    settle: int

    def __init__(self, stored: int, stream: SyntheticStream, settings: ThroughputSettings) -> None:
        self.stored, self._batch = stored, settings.batch
        self._events = stream.batches(self._batch)
        self.readings: list[Counter[str]] = []

    @abstractmethod
    def take(
        self, batches: Iterable[EventBatch], on_progress: OnProgress = no_progress
    ) -> list[Counter[str]]:
        """Process batches; for each, its batch_us, edges, messages, rows, and the time of each operator."""

    @property
    @abstractmethod
    def vertices(self) -> int: ...

    def fill(self, done_before: int, on_progress: OnProgress) -> int:
        """Fill the engine up to its size; the number of edges processed."""
        count = -(-self.stored // self._batch)
        self.take(self.loads(islice(self._events, count)), lambda done: on_progress(done_before + done))
        return count * self._batch

    def loads(self, batches: Iterator[EventBatch]) -> Iterator[EventBatch]:
        """The batches in the sizes that are used for filling."""
        return batches

    def measure(self, batches: int) -> float:
        """Time the next batches; the median in microseconds."""
        found = self.take(islice(self._events, self.settle + batches))[self.settle :]
        self.readings += found
        return float(np.median([reading["batch_us"] for reading in found]))

    def row(self) -> dict[str, Any]:
        """The row of the result for this size."""
        total: Counter[str] = sum(self.readings, Counter())
        times = {
            name.removesuffix("_us"): round(float(np.median([r[name] for r in self.readings])) / 1e3, 4)
            for name in sorted(total)
            if name.endswith("_us")
        }
        batch_us, count = times["batch"] * 1e3, len(self.readings)
        return {
            "stored_edges": self.stored,
            "vertices": self.vertices,
            "batch_ms_p50": times.pop("batch"),
            "messages_per_edge": round(total["messages"] / total["edges"], 2),
            "rows_per_edge": round(total["rows"] / total["edges"], 2),
            "us_per_message": round(batch_us * count / max(1, total["messages"]), 4),
            "us_per_row": round(batch_us * count / max(1, total["rows"]), 4),
            "operator_ms": times,
        }


class _Local(_Subject):
    settle = 1

    def __init__(
        self, stored: int, stream: SyntheticStream, settings: ThroughputSettings, model: GNN
    ) -> None:
        super().__init__(stored, stream, settings)
        self._engine = LocalEngine(
            model, parts=settings.parts, partitioner=settings.partitioner, schema=stream.schema
        )

    @property
    def vertices(self) -> int:
        return len(self._engine)

    def take(
        self, batches: Iterable[EventBatch], on_progress: OnProgress = no_progress
    ) -> list[Counter[str]]:
        found, done = [], 0
        for batch in batches:
            before = self._meters()
            start = time.perf_counter()
            updates = self._engine.apply(batch)
            spent = int((time.perf_counter() - start) * 1e6)
            more = Counter(batch_us=spent, edges=len(batch), rows=len(updates))
            found.append(self._meters() - before + more)
            done += len(batch)
            on_progress(done)
        return found

    def _meters(self) -> Counter[str]:
        return self._engine.metrics + Counter(messages=messages(self._engine))


class _OnSpark(_Subject):
    #: The first batches of a query are slower: planning and JIT compilation.
    settle = 4

    def __init__(
        self,
        stored: int,
        stream: SyntheticStream,
        settings: ThroughputSettings,
        model: GNN,
        spark: SparkSession,
        stack: ExitStack,
    ) -> None:
        from d3gnn.bench.spark import SparkPipeline

        super().__init__(stored, stream, settings)
        self._pipeline = stack.enter_context(
            SparkPipeline(spark, stream.schema, model, settings.parts, settings.partitioner)
        )

    @property
    def vertices(self) -> int:
        from d3gnn.bench.spark import SparkRun

        with closing(SparkRun(self._pipeline.plan, self._pipeline.model, [])) as run:
            return len(run)

    def loads(self, batches: Iterator[EventBatch]) -> Iterator[EventBatch]:
        return rebatch(batches, _LOAD)

    def take(
        self, batches: Iterable[EventBatch], on_progress: OnProgress = no_progress
    ) -> list[Counter[str]]:
        from d3gnn.runtime.metrics import metrics

        found = []
        for progress in self._pipeline.feed(batches, on_progress):
            spent = progress["durationMs"]["triggerExecution"] * 1000
            reading = Counter(batch_us=int(spent), edges=progress["numInputRows"])
            for name, values in metrics(progress).items():
                reading[f"{name}_us"] += values["busy_us"]
                reading["messages"] += values.get("messages", 0)
                reading["rows"] += values.get("rows", 0)
            found.append(reading)
        return found


def measure_growth(
    stored: Sequence[int] = (100_000, 300_000, 1_000_000),
    settings: ThroughputSettings | None = None,
    *,
    shape: Shape = "capped",
    max_degree: int = 16,
    timed: int = TIMED,
    on_edges: OnProgress = no_progress,
) -> GrowthResult:
    """Fill one engine to each size, then time batches on all of them in interleaved rounds.

    Rounds are interleaved because the speed of a machine drifts over minutes by more than the sizes differ.
    Each round runs several batches in a row, so that an engine finds its own data in the CPU caches.
    """
    import torch

    settings = settings or ThroughputSettings()
    check_sizes(stored, timed)
    torch.set_num_threads(settings.threads)
    model = make_model(
        settings.model, [settings.width] * (settings.layers + 1), settings.aggregator, settings.seed
    )
    rounds = min(ROUNDS, timed)
    each = -(-timed // rounds)
    with ExitStack() as stack:
        subjects = _subjects(stored, settings, model, (rounds, each), (shape, max_degree), stack)
        filled = 0
        for subject in subjects:
            filled += subject.fill(filled, on_edges)
        ratios = []
        for _ in range(rounds):
            medians = [subject.measure(each) for subject in subjects]
            ratios.append(round(medians[-1] / max(1.0, medians[0]), 3))
        sizes = [subject.row() for subject in subjects]
    return GrowthResult(
        settings={
            **asdict(settings),
            "shape": shape,
            "max_degree": max_degree,
            "timed_batches": rounds * each,
        },
        sizes=sizes,
        ratio=round(float(np.median(ratios)), 3),
        growth=round(stored[-1] / stored[0], 3),
        ratio_by_round=ratios,
    )


def _subjects(
    stored: Sequence[int], settings: ThroughputSettings, model: GNN, rounds: tuple[int, int],
    stream_kind: tuple[Shape, int], stack: ExitStack,
) -> Sequence[_Subject]:  # fmt: skip
    on_spark = settings.engine == "spark"
    settle = _OnSpark.settle if on_spark else _Local.settle
    # One more batch, in case a size is not a multiple of the batch size.
    edges = stored[-1] + (rounds[0] * (rounds[1] + settle) + 1) * settings.batch
    shape, max_degree = stream_kind
    # Vertices arrive at a constant rate, so the degrees are the same at every size.
    vertices = 0 if shape == "capped" else max(2, edges // _EDGES_EACH)
    stream = SyntheticStream(edges, vertices, settings.seed, shape, max_degree)
    if not on_spark:
        warm_up(model, stream.schema, settings.parts, settings.partitioner)
        return [_Local(size, stream, settings, model) for size in stored]
    from d3gnn.bench.spark import WARM_UP_BATCH, WARM_UP_BATCHES, SparkPipeline, bench_session

    spark = stack.enter_context(bench_session())
    with SparkPipeline(spark, stream.schema, model, settings.parts, settings.partitioner) as warm:
        warm.feed(islice(stream.batches(min(settings.batch, WARM_UP_BATCH)), WARM_UP_BATCHES))
    return [_OnSpark(size, stream, settings, model, spark, stack) for size in stored]


def check_sizes(stored: Sequence[int], timed: int) -> None:
    """Raise ValueError unless the sizes increase strictly."""
    if timed < 1:
        raise ValueError(f"timed={timed}: must be at least 1")
    if not stored or stored[0] < 1:
        raise ValueError("stored: needs at least one size of at least 1 edge, for example 100000,1000000")
    for small, large in pairwise(stored):
        if large <= small:
            raise ValueError(f"stored: {large} comes after {small}; sizes must increase")
