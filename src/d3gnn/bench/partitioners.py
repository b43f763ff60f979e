"""Quality and speed of partitioners: replication, balance, and what a stream then costs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from d3gnn.bench.result import BenchResult, OnProgress, no_progress
from d3gnn.events import EdgeMode, EventBatch, GraphSchema
from d3gnn.kernel.compiled import compiled, specialised
from d3gnn.kernel.operators import Partition
from d3gnn.kernel.partitioners import Partitioner, Placement, Settings, choose, partitioner
from d3gnn.kernel.partitioners.base import (
    CODE,
    DEGREE,
    FIRST_REPLICA,
    MASTER_PART,
    NEXT_REPLICA,
    PLANNED_EDGES,
    REPLICA_FIELDS,
    REPLICA_PART,
    TOTALS,
    VERTEX_COUNT,
    VERTEX_FIELDS,
)
from d3gnn.nn import GraphSAGE
from d3gnn.runtime.local import LocalEngine
from d3gnn.types import Hashes, Ints

BATCH = 20_000
_WARM_UP = 2_000
#: Edges of the stream through a model, its batches, and the width of the model.
STREAMED, STREAM_BATCH, WIDTH = 100_000, 2_000, 64


@dataclass(frozen=True)
class PartitionerResult(BenchResult):
    """One partitioner at one number of parts."""

    bench = "partitioners"
    replication_factor: float
    #: Edges in the fullest part divided by the mean; the same for masters.
    balance: float
    vertex_balance: float
    #: Edges per second of the Partition operator, and of the choice of a part alone.
    edges_per_second: float
    choice_edges_per_second: float
    #: A stream through two layers: bytes that operators send each other for each edge, and the median batch.
    bytes_per_edge: float
    batch_ms: float
    edges: int
    vertices: int
    parts: int


def measure_partitioner(
    stream: EventBatch,
    parts: int = 8,
    which: str = "hdrf",
    *,
    workload: str = "",
    mode: EdgeMode = "append",
    threads: int = 1,
    streamed: int = STREAMED,
    on_edges: OnProgress = no_progress,
) -> PartitionerResult:
    """Partition a stream of new edges; every `mode` but append also maintains the edge table.

    The first `streamed` edges also go through a model of two layers. An offline partitioner sees the whole
    stream before.
    """
    if parts < 1:
        raise ValueError(f"parts={parts}: must be at least 1")
    chosen = partitioner(which)
    schema = GraphSchema(edges=mode, features={"x": 1})
    sample = Partition(schema, parts, which, threads=threads)
    for batch in _batches(stream.between(0, min(len(stream), 2 * BATCH)), BATCH):
        sample.process(batch, 0)
    partition = Partition(schema, parts, which, threads=threads)
    partition.plan(stream)
    seconds, done = 0.0, 0
    for batch in _batches(stream, BATCH):
        start = time.perf_counter()
        partition.process(batch, 0)
        seconds += time.perf_counter() - start
        done += len(batch)
        on_edges(done)
    placement = partition.graph().placement
    load, masters = placement.load, placement.masters
    nbytes, milliseconds = _stream_cost(stream.between(0, min(len(stream), streamed)), parts, chosen, mode)
    return PartitionerResult(
        settings={
            "partitioner": which, "edges": mode, "batch": BATCH, "threads": threads, "workload": workload,
            "streamed": min(len(stream), streamed), "stream_batch": STREAM_BATCH,
        },
        replication_factor=round(partition.replication_factor, 4),
        balance=round(float(load.max() / load.mean()), 4),
        vertex_balance=round(float(masters.max() / masters.mean()), 4),
        edges_per_second=round(len(stream) / seconds, 1),
        choice_edges_per_second=round(len(stream) / _choice_seconds(stream, partition), 1),
        bytes_per_edge=round(nbytes, 1),
        batch_ms=round(milliseconds, 3),
        edges=len(stream),
        vertices=partition.vertex_count,
        parts=parts,
    )  # fmt: skip


def _batches(stream: EventBatch, size: int) -> Iterator[EventBatch]:
    for begin in range(0, len(stream), size):
        yield stream.between(begin, min(begin + size, len(stream)))


def _stream_cost(stream: EventBatch, parts: int, which: Partitioner, mode: EdgeMode) -> tuple[float, float]:
    """Bytes per edge that the operators of two layers send, and the median of a batch in milliseconds."""
    schema = GraphSchema(edges=mode, missing="hash")
    model = GraphSAGE(WIDTH, WIDTH, num_layers=2, out_channels=WIDTH, seed=0)
    engine = LocalEngine(model, parts=parts, partitioner=which, schema=schema)
    engine.partition.plan(stream)
    spent = []
    for batch in _batches(stream, STREAM_BATCH):
        start = time.perf_counter()
        engine.apply(batch, 0)
        spent.append(time.perf_counter() - start)
    return engine.metrics["bytes"] / len(stream), 1e3 * float(np.median(spent))


def _choice_seconds(stream: EventBatch, partition: Partition) -> float:
    which, parts, vertices = partition.partitioner, partition.parts, len(partition.ids)
    choose_all = specialised(_choose_all, which.name, choose=which.choose)
    assert stream.dst is not None
    src, dst = (partition.ids.find(keys).astype(np.int64) for keys in (stream.src, stream.dst))
    graph, seconds = partition.graph(), 0.0
    for n in (min(_WARM_UP, len(src)), len(src)):  # the first run compiles the kernel
        totals = np.zeros(TOTALS, np.int64)
        totals[PLANNED_EDGES] = graph.placement.totals[PLANNED_EDGES]
        placement = Placement(
            vertex=np.zeros((vertices, VERTEX_FIELDS), np.int32),
            replica=np.zeros((vertices * parts, REPLICA_FIELDS), np.int32),
            load=np.zeros(parts, np.int64),
            masters=np.zeros(parts, np.int64),
            totals=totals,
            planned=graph.placement.planned,
            score=np.zeros(parts, np.float64),
        )
        placement.vertex[:, CODE] = np.arange(vertices)
        start = time.perf_counter()
        choose_all(src[:n], dst[:n], graph.hashes, placement, which.settings)
        seconds = time.perf_counter() - start
    return seconds


@compiled
def _choose_all(src: Ints, dst: Ints, hashes: Hashes, placement: Placement, settings: Settings) -> int:
    """Choose a part for every edge, and update the degrees, replicas and loads that later choices read."""
    used = 0
    ends = np.empty(2, np.int64)
    for i in range(len(src)):
        u, v = src[i], dst[i]
        part = np.int64(choose(u, v, hashes[u], hashes[v], placement, settings))
        ends[0], ends[1] = u, v
        for w in ends:
            placement.vertex[w, DEGREE] += 1
            at = placement.vertex[w, FIRST_REPLICA] - 1
            if at < 0:
                placement.vertex[w, MASTER_PART] = part
                placement.masters[part] += 1
                placement.totals[VERTEX_COUNT] += 1
            while at >= 0 and placement.replica[at, REPLICA_PART] != part:
                at = placement.replica[at, NEXT_REPLICA] - 1
            if at < 0:
                placement.replica[used, REPLICA_PART] = part
                placement.replica[used, NEXT_REPLICA] = placement.vertex[w, FIRST_REPLICA]
                used += 1
                placement.vertex[w, FIRST_REPLICA] = used
        placement.load[part] += 1
    return used
