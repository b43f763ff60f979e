"""Compare models on the same stream, with interleaved batches.

Each batch runs through every model before the next batch starts. A temporary slowdown of the machine then
affects all models alike, and the ratios of their run times are stable.
"""

from __future__ import annotations

import gc
import time
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

import numpy as np

from d3gnn.bench.check import Expected, compare_with
from d3gnn.bench.models import MODELS, make_model
from d3gnn.bench.result import BenchResult, StepContext
from d3gnn.bench.settings import check_at_least_one, check_partitioner
from d3gnn.bench.throughput import oracle_batches
from d3gnn.bench.warm_up import warm_up
from d3gnn.bench.workload import Workload
from d3gnn.nn import GNN
from d3gnn.oracle import Oracle, embeddings
from d3gnn.runtime.local import LocalEngine

#: The model that the run times of the others are divided by.
BASE = "sage"
_EXTREME = "sage, max"


@dataclass(frozen=True)
class ModelsSettings:
    """Settings of the models benchmark; checked on construction."""

    batch: int = 2000
    parts: int = 1
    partitioner: str = "hdrf"
    layers: int = 2
    width: int = 64
    threads: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        check_at_least_one(self, "batch", "parts", "layers", "width", "threads")
        check_partitioner(self.partitioner)

    def models(self, in_width: int) -> dict[str, GNN]:
        """One model of each kind, by name; GraphSAGE with mean and with max aggregation."""
        widths = [in_width] + [self.width] * self.layers
        models = {name: make_model(name, widths, seed=self.seed) for name in MODELS}
        return {BASE: models.pop(BASE), _EXTREME: make_model(BASE, widths, "max", self.seed), **models}


@dataclass(frozen=True)
class ModelsResult(BenchResult):
    """Measurements of each model, by name.

    Each entry has `model`, `seconds` (total time in `LocalEngine.apply`), `edges_per_second`, `batch_ms_p50`,
    `relative_time` (its `seconds` divided by those of GraphSAGE with mean aggregation), and
    `max_relative_error` against recomputation from scratch at the end of the stream.
    """

    bench = "models"
    models: dict[str, dict[str, Any]]
    events: int
    edges: int
    vertices: int
    batch: int


def measure_models(
    workload: Workload,
    settings: ModelsSettings | None = None,
    *,
    on_step: StepContext = lambda _: nullcontext(),
) -> ModelsResult:
    """Run a workload through one `LocalEngine` per model; check the final embeddings by recomputation."""
    import torch

    settings = settings or ModelsSettings()
    torch.set_num_threads(settings.threads)
    workload = workload.cached()
    models = settings.models(workload.schema.width or settings.width)
    parts, partitioner, schema = settings.parts, settings.partitioner, workload.schema
    with on_step("compiling"):
        for model in models.values():
            sample = islice(workload.batches(min(settings.batch, 1000)), 3)
            warm_up(model, schema, parts, partitioner, sample)
    engines = {
        name: LocalEngine(model, parts=parts, partitioner=partitioner, schema=schema)
        for name, model in models.items()
    }
    with on_step("all models, interleaved"):
        times = _run_interleaved(workload, settings.batch, engines)
    with on_step("recomputation"):
        oracle = Oracle(engines[BASE].schema)
        for batch in oracle_batches(workload, settings.batch):
            oracle.apply(batch)
        errors = {
            name: compare_with(engine, Expected(embeddings(engine.model, oracle), 0)).max_relative_error
            for name, engine in engines.items()
        }
    edges, base = workload.edges(), float(times[BASE].sum())
    return ModelsResult(
        settings={
            "workload": workload.name,
            "edges": schema.edges,
            "directed": schema.directed,
            **asdict(settings),
        },
        models={
            name: {
                "model": repr(engines[name].model),
                "seconds": round(float(took.sum()), 4),
                "edges_per_second": round(edges / float(took.sum()), 1),
                "batch_ms_p50": round(float(np.median(took)) * 1e3, 3),
                "relative_time": round(float(took.sum()) / base, 3),
                "max_relative_error": errors[name],
            }
            for name, took in times.items()
        },
        events=workload.events,
        edges=edges,
        vertices=len(oracle.vertices),
        batch=settings.batch,
    )


def _run_interleaved(
    workload: Workload, batch: int, engines: dict[str, LocalEngine]
) -> dict[str, np.ndarray]:
    """The seconds of each batch in each engine; the order of the engines rotates from batch to batch."""
    times: dict[str, list[float]] = {name: [] for name in engines}
    names = list(engines)
    gc.collect()
    gc.freeze()
    try:
        for number, events in enumerate(workload.batches(batch)):
            first = number % len(names)
            for name in names[first:] + names[:first]:
                start = time.perf_counter()
                engines[name].apply(events)
                times[name].append(time.perf_counter() - start)
    finally:
        gc.unfreeze()
    return {name: np.array(took) for name, took in times.items()}
