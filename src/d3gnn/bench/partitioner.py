"""Speed of the streaming vertex-cut: the whole Partition operator, and the choice of a part alone."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from d3gnn.bench.result import BenchResult, OnProgress, no_progress
from d3gnn.events import EdgeMode, GraphSchema
from d3gnn.events.keys import IntKeys
from d3gnn.kernel.compiled import compiled, specialised
from d3gnn.kernel.operators import Partition
from d3gnn.kernel.partitioners import Partitioner, Placement, Settings, choose, partitioner
from d3gnn.kernel.partitioners.base import (
    DEGREE,
    FIRST_REPLICA,
    NEXT_REPLICA,
    REPLICA_FIELDS,
    REPLICA_PART,
    VERTEX_FIELDS,
)
from d3gnn.sources import SyntheticStream
from d3gnn.types import Hashes, Ints

BATCH = 20_000
_WARM_UP = 2_000


@dataclass(frozen=True)
class PartitionerResult(BenchResult):
    """Edges per second of the Partition operator, and of the choice of a part alone."""

    bench = "partitioner"
    edges_per_second: float
    choice_edges_per_second: float
    replication_factor: float
    #: Edges in the fullest part divided by the mean.
    balance: float
    edges: int
    vertices: int
    parts: int


def measure_partitioner(
    edges: int = 2_000_000,
    parts: int = 8,
    which: str = "hdrf",
    *,
    mode: EdgeMode = "append",
    seed: int = 0,
    on_edges: OnProgress = no_progress,
) -> PartitionerResult:
    """Partition a synthetic power-law stream; every `mode` but append also maintains the edge table."""
    if parts < 1:
        raise ValueError(f"parts={parts}: must be at least 1")
    chosen = partitioner(which)
    stream = SyntheticStream(edges=edges, seed=seed)
    schema = GraphSchema(edges=mode, features={"x": 1})
    sample = Partition(schema, parts, which)
    for batch in SyntheticStream(edges=2 * _WARM_UP, seed=seed).batches(_WARM_UP):
        sample.process(batch, 0)
    partition = Partition(schema, parts, which)
    seconds, done, load = 0.0, 0, np.zeros(parts, np.int64)
    src, dst = np.empty(edges, np.int64), np.empty(edges, np.int64)
    for batch in stream.batches(BATCH):
        assert isinstance(batch.src, IntKeys)
        assert isinstance(batch.dst, IntKeys)
        start = time.perf_counter()
        result = partition.process(batch, 0)
        seconds += time.perf_counter() - start
        src[done : done + len(batch)], dst[done : done + len(batch)] = batch.src.values, batch.dst.values
        load += np.bincount(result.entry.part, minlength=parts)
        done += len(batch)
        on_edges(done)
    choice = _choice_seconds(src, dst, stream.vertices, parts, chosen)
    return PartitionerResult(
        settings={"partitioner": which, "edges": mode, "batch": BATCH, "seed": seed},
        edges_per_second=round(edges / seconds, 1),
        choice_edges_per_second=round(edges / choice, 1),
        replication_factor=round(partition.replication_factor, 4),
        balance=round(float(load.max() / load.mean()), 4),
        edges=edges,
        vertices=partition.vertex_count,
        parts=parts,
    )


def _choice_seconds(src: Ints, dst: Ints, vertices: int, parts: int, which: Partitioner) -> float:
    choose_all = specialised(_choose_all, which.name, choose=which.choose)
    hashes = np.random.default_rng(0).integers(0, 2**63, vertices).astype(np.uint64)
    seconds = 0.0
    for n in (min(_WARM_UP, len(src)), len(src)):  # the first run compiles the kernel
        placement = Placement(
            vertex=np.zeros((vertices, VERTEX_FIELDS), np.int32),
            replica=np.zeros((vertices * parts, REPLICA_FIELDS), np.int32),
            load=np.zeros(parts, np.int64),
            masters=np.zeros(parts, np.int64),
            totals=np.array([vertices, 0, vertices, 0, 0]),
            planned=np.zeros(0, np.int32),
            score=np.zeros(parts, np.float64),
        )
        start = time.perf_counter()
        choose_all(src[:n], dst[:n], hashes, placement, which.settings)
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
            while at >= 0 and placement.replica[at, REPLICA_PART] != part:
                at = placement.replica[at, NEXT_REPLICA] - 1
            if at < 0:
                placement.replica[used, REPLICA_PART] = part
                placement.replica[used, NEXT_REPLICA] = placement.vertex[w, FIRST_REPLICA]
                used += 1
                placement.vertex[w, FIRST_REPLICA] = used
        placement.load[part] += 1
    return used
