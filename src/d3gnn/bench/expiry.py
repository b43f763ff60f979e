"""The cost of an edge that expires, beside that of an edge that an event deletes."""

from __future__ import annotations

import gc
import time
from dataclasses import asdict, dataclass, replace

import numpy as np

from d3gnn.bench.models import make_model
from d3gnn.bench.result import BenchResult, OnProgress, no_progress
from d3gnn.bench.settings import check_at_least_one, check_partitioner
from d3gnn.events import Event, EventBatch, GraphSchema, Op
from d3gnn.oracle import relative_error
from d3gnn.runtime.local import LocalEngine

#: Groups at the beginning that are not timed: they compile.
_SETTLE = 2
#: Edges per vertex.
_EDGES_EACH = 8
_GAP = 1_000


@dataclass(frozen=True)
class ExpirySettings:
    """Settings of the expiry benchmark; checked on construction."""

    #: Edges that expire, or are deleted, in each timed batch; and the number of these batches.
    batch: int = 2000
    timed: int = 40
    parts: int = 1
    partitioner: str = "hdrf"
    layers: int = 2
    width: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        check_at_least_one(self, "batch", "timed", "parts", "layers", "width")
        check_partitioner(self.partitioner)


@dataclass(frozen=True)
class ExpiryResult(BenchResult):
    """Medians over the timed batches, in microseconds per edge: CPU time in all operators, which other
    processes disturb less than elapsed time; and elapsed time in Partition alone.
    """

    bench = "expiry"
    us_per_expired_edge: float
    us_per_deleted_edge: float
    partition_us_per_expired_edge: float
    partition_us_per_deleted_edge: float
    #: Expired divided by deleted: the median over batches, which are the same in both.
    ratio: float
    stored_edges: int
    vertices: int
    #: Difference between the embeddings of both at the end.
    max_relative_error: float


def measure_expiry(
    settings: ExpirySettings | None = None, *, on_edges: OnProgress = no_progress
) -> ExpiryResult:
    """Remove the same edges from two engines, in one by expiry and in the other by events, batch by batch.

    The graph has twice as many edges as the batches remove.
    """
    import torch

    torch.set_num_threads(1)
    settings = settings or ExpirySettings()
    groups = settings.timed + _SETTLE
    ttl = 4 * groups * _GAP
    schema = GraphSchema(features={"x": settings.width})
    model = make_model("sage", [settings.width] * (settings.layers + 1), seed=settings.seed)
    expiring, deleting = (
        LocalEngine(model, parts=settings.parts, partitioner=settings.partitioner, schema=each)
        for each in (replace(schema, ttl=ttl), schema)
    )
    batches = _groups(2 * groups, settings)
    done = 0
    for batch in batches:
        for engine in (expiring, deleting):
            engine.apply(batch)
        done += len(batch)
        on_edges(done)
    vertices = len(expiring)
    times: list[list[tuple[float, float]]] = [[], []]
    gc.collect()
    gc.freeze()
    try:
        for g, batch in enumerate(batches[:groups]):
            now = int(batch.time[0]) + ttl + 1
            clock = EventBatch.of([Event("create", "vertex", -1 - g, time=now)])
            deletes = EventBatch.concat([replace(batch, op=np.full(len(batch), Op.DELETE, np.int8)), clock])
            runs = [(0, expiring, clock), (1, deleting, deletes)]
            for i, engine, events in runs if g % 2 else runs[::-1]:
                before, start = engine.metrics["partition_us"], time.process_time()
                engine.apply(events)
                spent = (time.process_time() - start) * 1e6
                times[i].append((spent, engine.metrics["partition_us"] - before))
            done += len(batch)
            on_edges(done)
    finally:
        gc.unfreeze()
    expired, deleted = (np.array(each[_SETTLE:]) / settings.batch for each in times)
    ids = deleting.ids()
    error = relative_error(expiring.embeddings(ids), deleting.embeddings(ids))
    return ExpiryResult(
        settings=asdict(settings),
        us_per_expired_edge=round(float(np.median(expired[:, 0])), 4),
        us_per_deleted_edge=round(float(np.median(deleted[:, 0])), 4),
        partition_us_per_expired_edge=round(float(np.median(expired[:, 1])), 4),
        partition_us_per_deleted_edge=round(float(np.median(deleted[:, 1])), 4),
        ratio=round(float(np.median(expired[:, 0] / deleted[:, 0])), 3),
        stored_edges=sum(map(len, batches)),
        vertices=vertices,
        max_relative_error=error,
    )


def _groups(count: int, settings: ExpirySettings) -> list[EventBatch]:
    """Batches of distinct random edges; all edges of a batch have the same time."""
    rng = np.random.default_rng(settings.seed)
    edges = count * settings.batch
    vertices = max(2, edges // _EDGES_EACH)
    pairs = np.unique(rng.integers(0, vertices * vertices, int(edges * 1.2) + 10))
    pairs = rng.permutation(pairs)[:edges]
    return [
        EventBatch.edges(group // vertices, group % vertices, time=np.full(len(group), g * _GAP))
        for g, group in enumerate(np.array_split(pairs, count))
    ]
