"""Does a batch cost what it touches? The same batches on a graph that grows, with degrees that do not."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from d3gnn.bench.result import BenchResult, Report, silent
from d3gnn.bench.throughput import ThroughputSettings, messages
from d3gnn.bench.warm_up import warm_up
from d3gnn.kernel.local import LocalEngine
from d3gnn.nn import GraphSAGE
from d3gnn.sources import SyntheticStream

#: Batches that are timed at each size: a median of many, and early ones count as any.
_TIMED = 40


@dataclass(frozen=True)
class GrowthResult(BenchResult):
    """Median time of a batch by the number of edges stored before it."""

    bench = "growth"
    #: One row per size: stored_edges, vertices, batch_ms_p50, messages_per_edge, operator_ms (medians).
    sizes: list[dict[str, Any]]
    #: How many times as long a batch takes at the last size as at the first; how many times as large that is.
    ratio: float
    growth: float


def measure_growth(
    stored: Sequence[int] = (100_000, 300_000, 1_000_000),
    settings: ThroughputSettings | None = None,
    *,
    max_degree: int = 16,
    timed: int = _TIMED,
    on_edges: Report = silent,
) -> GrowthResult:
    """Grow one engine to each size in turn, and time batches there."""
    import torch

    settings = settings or ThroughputSettings()
    check_sizes(stored, timed, settings)
    torch.set_num_threads(settings.threads)
    model = GraphSAGE([settings.width] * (settings.layers + 1), settings.aggregator, seed=settings.seed)
    total = edges_needed(stored, timed, settings)
    stream = SyntheticStream(edges=total, shape="capped", max_degree=max_degree, seed=settings.seed)
    warm_up(model, stream.schema, settings.parts, settings.partitioner)
    engine = LocalEngine(model, settings.parts, settings.partitioner, stream.schema)
    sizes: list[dict[str, Any]] = []
    readings: list[Counter[str]] = []
    edges = 0
    for batch in stream.batches(settings.batch):
        before = _meters(engine)
        begun = time.perf_counter()
        engine.apply(batch)
        microseconds = int((time.perf_counter() - begun) * 1e6)
        if edges >= stored[len(sizes)]:
            readings.append(_meters(engine) - before + Counter(batch_us=microseconds))
        edges += len(batch)
        on_edges(edges)
        if len(readings) == timed:
            sizes.append(_row(stored[len(sizes)], engine, readings, settings.batch))
            readings = []
            if len(sizes) == len(stored):
                break
    on_edges(total)
    return GrowthResult(
        settings={**asdict(settings), "max_degree": max_degree, "timed_batches": timed},
        sizes=sizes,
        ratio=round(sizes[-1]["batch_ms_p50"] / sizes[0]["batch_ms_p50"], 3),
        growth=round(stored[-1] / stored[0], 3),
    )


def edges_needed(stored: Sequence[int], timed: int, settings: ThroughputSettings) -> int:
    """Edges that it takes to reach the last size, in whole batches, and to time batches there."""
    return stored[-1] + (timed + 1) * settings.batch


def check_sizes(stored: Sequence[int], timed: int, settings: ThroughputSettings) -> None:
    """Refuse sizes that do not rise, or that leave no room for the batches timed between them."""
    room = (timed + 1) * settings.batch
    if timed < 1:
        raise ValueError(f"timed={timed}: at least 1 batch, please")
    if not stored or stored[0] < 1:
        raise ValueError("stored: at least one size of at least 1 edge, please, as in 100000,1000000")
    for small, large in pairwise(stored):
        if large < small + room:
            raise ValueError(
                f"stored: {large} comes after {small}, but {room} edges are for timing there; "
                f"give at least {small + room}, or time fewer or smaller batches"
            )


def _meters(engine: LocalEngine) -> Counter[str]:
    return engine.metrics + Counter(messages=messages(engine))


def _row(stored: int, engine: LocalEngine, readings: list[Counter[str]], batch: int) -> dict[str, Any]:
    times = {
        name.removesuffix("_us"): round(float(np.median([reading[name] for reading in readings])) / 1e3, 4)
        for name in readings[0]
        if name.endswith("_us")
    }
    return {
        "stored_edges": stored,
        "vertices": len(engine),
        "batch_ms_p50": times.pop("batch"),
        "messages_per_edge": round(sum(r["messages"] for r in readings) / (len(readings) * batch), 2),
        "operator_ms": times,
    }
