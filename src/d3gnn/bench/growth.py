"""Does a batch cost what it touches? The same batches on graphs of several sizes, with the same degrees."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from d3gnn.bench.result import BenchResult, Report, silent
from d3gnn.bench.throughput import ThroughputSettings, messages
from d3gnn.bench.warm_up import warm_up
from d3gnn.events import EventBatch
from d3gnn.kernel.local import LocalEngine
from d3gnn.nn import GraphSAGE
from d3gnn.sources import SyntheticStream

#: Batches that are timed at each size, and the rounds that they are spread over.
TIMED = 40
ROUNDS = 5


@dataclass(frozen=True)
class GrowthResult(BenchResult):
    """Median time of a batch by the number of edges stored before it."""

    bench = "growth"
    #: One row per size: stored_edges, vertices, batch_ms_p50, messages_per_edge, operator_ms (medians).
    sizes: list[dict[str, Any]]
    #: How many times as long a batch takes at the last size as at the first; how many times as large that is.
    ratio: float
    growth: float
    #: The same ratio in each round alone: where these lie far apart, the machine was busy otherwise.
    ratio_by_round: list[float]


@dataclass
class _Subject:
    """An engine that is kept at one size."""

    stored: int
    engine: LocalEngine
    batches: Iterator[EventBatch]
    readings: list[Counter[str]] = field(default_factory=list)

    def fill(self, begun: int, report: Report) -> int:
        """Take in edges up to the size; how many that were."""
        done = 0
        while done < self.stored:
            batch = next(self.batches)
            self.engine.apply(batch)
            done += len(batch)
            report(begun + done)
        return done

    def measure(self, batches: int) -> float:
        """Time some more batches; their median, in microseconds."""
        for _ in range(batches):
            batch, before = next(self.batches), self._meters()
            begun = time.perf_counter()
            self.engine.apply(batch)
            spent = int((time.perf_counter() - begun) * 1e6)
            self.readings.append(self._meters() - before + Counter(batch_us=spent, edges=len(batch)))
        return float(np.median([reading["batch_us"] for reading in self.readings[-batches:]]))

    def _meters(self) -> Counter[str]:
        return self.engine.metrics + Counter(messages=messages(self.engine))

    def row(self) -> dict[str, Any]:
        """What was measured at this size."""
        total: Counter[str] = sum(self.readings, Counter())
        times = {
            name.removesuffix("_us"): round(float(np.median([r[name] for r in self.readings])) / 1e3, 4)
            for name in sorted(total)
            if name.endswith("_us")
        }
        return {
            "stored_edges": self.stored,
            "vertices": len(self.engine),
            "batch_ms_p50": times.pop("batch"),
            "messages_per_edge": round(total["messages"] / total["edges"], 2),
            "operator_ms": times,
        }


def measure_growth(
    stored: Sequence[int] = (100_000, 300_000, 1_000_000),
    settings: ThroughputSettings | None = None,
    *,
    max_degree: int = 16,
    timed: int = TIMED,
    on_edges: Report = silent,
) -> GrowthResult:
    """Fill an engine to each size, then time batches on all of them, in turns.

    In turns, because a machine's speed drifts over minutes by more than the sizes differ; several batches in
    a row, because each engine should find its own memory in the caches, as it would alone.
    """
    import torch

    settings = settings or ThroughputSettings()
    check_sizes(stored, timed)
    torch.set_num_threads(settings.threads)
    model = GraphSAGE([settings.width] * (settings.layers + 1), settings.aggregator, seed=settings.seed)
    rounds = min(ROUNDS, timed)
    each = -(-timed // rounds)
    # One batch more to fill to a size that is no multiple of it; one more in each round, to warm up.
    edges = stored[-1] + (rounds * (each + 1) + 1) * settings.batch
    stream = SyntheticStream(edges=edges, shape="capped", max_degree=max_degree, seed=settings.seed)
    warm_up(model, stream.schema, settings.parts, settings.partitioner)
    subjects = [
        _Subject(
            size,
            LocalEngine(model, settings.parts, settings.partitioner, stream.schema),
            stream.batches(settings.batch),
        )
        for size in stored
    ]
    filled = 0
    for subject in subjects:
        filled += subject.fill(filled, on_edges)
    ratios = []
    for _ in range(rounds):
        medians = []
        for subject in subjects:
            subject.engine.apply(next(subject.batches))
            medians.append(subject.measure(each))
        ratios.append(round(medians[-1] / max(1.0, medians[0]), 3))
    sizes = [subject.row() for subject in subjects]
    return GrowthResult(
        settings={**asdict(settings), "max_degree": max_degree, "timed_batches": rounds * each},
        sizes=sizes,
        ratio=round(float(np.median(ratios)), 3),
        growth=round(stored[-1] / stored[0], 3),
        ratio_by_round=ratios,
    )


def check_sizes(stored: Sequence[int], timed: int) -> None:
    """Refuse sizes that do not rise."""
    if timed < 1:
        raise ValueError(f"timed={timed}: at least 1 batch, please")
    if not stored or stored[0] < 1:
        raise ValueError("stored: at least one size of at least 1 edge, please, as in 100000,1000000")
    for small, large in pairwise(stored):
        if large <= small:
            raise ValueError(f"stored: {large} comes after {small}; give sizes that rise")
