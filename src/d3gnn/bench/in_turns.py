"""What each model costs: the same stream through all of them, batch by batch in turns.

So what slows down the machine for a while slows down all of them, and their ratios stay what they are.
"""

from __future__ import annotations

import gc
import time
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

import numpy as np

from d3gnn.bench.check import Expected, hold_against
from d3gnn.bench.models import MODELS, make_model
from d3gnn.bench.result import Around, BenchResult
from d3gnn.bench.settings import at_least_one, known_partitioner
from d3gnn.bench.throughput import for_the_oracle
from d3gnn.bench.warm_up import warm_up
from d3gnn.bench.workload import Workload
from d3gnn.kernel.local import LocalEngine
from d3gnn.kernel.reference import Oracle, embeddings
from d3gnn.nn import GNN

#: What the others are held against.
BASE = "sage"
_EXTREME = "sage, max"


@dataclass(frozen=True)
class ModelsSettings:
    """Which stream goes through which models, and how."""

    batch: int = 2000
    parts: int = 1
    partitioner: str = "hdrf"
    layers: int = 2
    width: int = 64
    threads: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        at_least_one(self, "batch", "parts", "layers", "width", "threads")
        known_partitioner(self.partitioner)

    def models(self, in_width: int) -> dict[str, GNN]:
        """One of each kind, by name, and GraphSAGE with the maximum as well as the mean."""
        widths = [in_width] + [self.width] * self.layers
        made = {name: make_model(name, widths, seed=self.seed) for name in MODELS}
        return {BASE: made.pop(BASE), _EXTREME: make_model(BASE, widths, "max", self.seed), **made}


@dataclass(frozen=True)
class ModelsResult(BenchResult):
    """What came of each model, by name.

    Each has: `model`, `seconds` (of `LocalEngine.apply`, over the whole stream), `edges_per_second`,
    `batch_ms_p50`, `times` (its seconds over those of GraphSAGE with the mean), and `max_relative_error`
    against recomputation from scratch at the end.
    """

    bench = "models"
    models: dict[str, dict[str, Any]]
    events: int
    edges: int
    vertices: int
    batch: int


def measure_models(
    workload: Workload, settings: ModelsSettings | None = None, *, around: Around = lambda _: nullcontext()
) -> ModelsResult:
    """Run a workload through one engine for each model, and hold each end against recomputation."""
    import torch

    settings = settings or ModelsSettings()
    torch.set_num_threads(settings.threads)
    workload = workload.held()
    models = settings.models(workload.schema.width or settings.width)
    parts, partitioner, schema = settings.parts, settings.partitioner, workload.schema
    with around("compiling"):
        for model in models.values():
            sample = islice(workload.batches(min(settings.batch, 1000)), 3)
            warm_up(model, schema, parts, partitioner, sample)
    engines = {name: LocalEngine(model, parts, partitioner, schema) for name, model in models.items()}
    with around("all models in turns"):
        times = _in_turns(workload, settings.batch, engines)
    with around("recomputation"):
        oracle = Oracle(engines[BASE].schema)
        for batch in for_the_oracle(workload, settings.batch):
            oracle.apply(batch)
        errors = {
            name: hold_against(engine, Expected(embeddings(engine.model, oracle), 0)).max_relative_error
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
                "times": round(float(took.sum()) / base, 3),
                "max_relative_error": errors[name],
            }
            for name, took in times.items()
        },
        events=workload.events,
        edges=edges,
        vertices=len(oracle.vertices),
        batch=settings.batch,
    )


def _in_turns(workload: Workload, batch: int, engines: dict[str, LocalEngine]) -> dict[str, np.ndarray]:
    """Seconds of each batch in each engine; who begins changes with every batch."""
    times: dict[str, list[float]] = {name: [] for name in engines}
    names = list(engines)
    gc.collect()
    gc.freeze()
    try:
        for number, events in enumerate(workload.batches(batch)):
            first = number % len(names)
            for name in names[first:] + names[:first]:
                begun = time.perf_counter()
                engines[name].apply(events)
                times[name].append(time.perf_counter() - begun)
    finally:
        gc.unfreeze()
    return {name: np.array(took) for name, took in times.items()}
