"""The embeddings that a pipeline on a cluster holds: read in the homes of its tasks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pyspark.sql import SparkSession

from d3gnn.events import Key
from d3gnn.events.keys import Keys, keys_of
from d3gnn.kernel.operators import PARTITION, Vertex
from d3gnn.runtime.between_batches import NotVerified
from d3gnn.runtime.cluster_worker import ClusterWorker
from d3gnn.runtime.log_position import check_position
from d3gnn.runtime.plan import Plan, recorded_homes
from d3gnn.runtime.store_timers import StoreTimers
from d3gnn.runtime.verify import NOTHING, Verdict, catch_up, compared, owner_of, replayed, stored_plan
from d3gnn.spark.homes import ask, homes_table, wait_for_executors
from d3gnn.store.graph_log import GraphLog
from d3gnn.store.models import get_model
from d3gnn.store.store import Store
from d3gnn.types import Array, Bools, Floats

__all__ = ["embeddings_on_cluster", "verify_on_cluster"]

#: How long to wait for the end of a batch, and between two looks.
_PATIENCE, _PAUSE = 120.0, 0.2

Version = tuple[int, int]


class _Read(NamedTuple):
    version: Version
    embeddings: Floats
    exists: Bools


def verify_on_cluster(
    spark: SparkSession, checkpoint: str | Path | Plan, *, arrays: str | Path | None = None
) -> Verdict:
    """As `d3gnn.runtime.verify.verify`, for a pipeline on the cluster of this session."""
    plan = checkpoint if isinstance(checkpoint, Plan) else stored_plan(checkpoint, arrays)
    store = Store(plan.store)
    log = GraphLog(store)
    batch = log.last()
    if batch is None:
        return NOTHING
    oracle, deadline = replayed(plan, log, batch), time.monotonic() + _PATIENCE
    while True:
        found = _read(spark, plan, keys_of(oracle.vertices))
        held = found.version[1] - 1
        if held == batch or time.monotonic() > deadline:
            break
        batch = catch_up(oracle, log, batch, held, plan.arrays)
    model = get_model(store, plan.model)
    waiting = StoreTimers(store).read().pending
    return compared(oracle, model, batch, found.embeddings, found.exists, waiting)


def embeddings_on_cluster(spark: SparkSession, plan: Plan, ids: Sequence[Key]) -> dict[Key, Floats]:
    """The embeddings of those of these vertices that a pipeline holds."""
    found = _read(spark, plan, keys_of(list(ids)))
    return {id: found.embeddings[i] for i, id in enumerate(ids) if found.exists[i]}


def _read(spark: SparkSession, plan: Plan, ids: Keys) -> _Read:
    """Embeddings of vertices, NaN for missing ones, all of them between the same two batches."""
    store = Store(plan.store)
    hosts, query = recorded_homes(store), owner_of(store)
    if not hosts:
        raise NotVerified(
            f"the pipeline of the store {plan.store} did not run on a cluster at its last start"
        )
    plan = replace(plan, tasks=len(hosts), homes=hosts)
    wait_for_executors(spark, len(set(hosts)))
    homes = homes_table(spark, hosts)
    deadline = time.monotonic() + _PATIENCE
    while True:
        version, parts, rows = ask(homes, lambda task: _locate(plan, query, ids) if task == 0 else None)[0]
        found = list(chain.from_iterable(ask(homes, partial(_values, plan, query, parts, rows))))
        versions = {version for version, _, _ in found} | {version}
        if len(versions) == 1 and version[1] >= 0:
            break
        if time.monotonic() > deadline:
            raise NotVerified(
                f"the arrays of the tasks are at the versions {sorted(versions)}: a batch takes long, or was "
                "interrupted. Start the pipeline, which rebuilds its state, then verify again"
            )
        time.sleep(_PAUSE)
    width = next(values.shape[1] for _, _, values in found)
    embeddings = np.full((len(ids), width), np.nan, np.float32)
    for _, part, values in found:
        embeddings[parts == part] = values
    return _Read(version, embeddings, parts >= 0)


def _locate(plan: Plan, query: str, ids: Keys) -> tuple[Version, Array, Array]:
    """In the home of Partition: its version, and the part and row of each vertex."""
    _require_arrays(plan, query, [0], partition=True)
    with closing(ClusterWorker(plan, query)) as worker:
        state = worker.state.open(PARTITION, 0)
        with state.locked():
            check_position(state, GraphLog(Store(plan.store)))
            return _version(state.version, state.dirty), *worker.partition.locate(ids)


def _values(
    plan: Plan, query: str, parts: Array, rows: Array, task: int
) -> list[tuple[Version, int, Floats]]:
    """In the home of a task: the version of each of its parts, and the embeddings of these masters."""
    own = [part for part in range(plan.parts) if plan.task(part) == task]
    _require_arrays(plan, query, own)
    found = []
    with closing(ClusterWorker(plan, query)) as worker:
        last = worker.operator(plan.chain.embeddings)
        assert isinstance(last, Vertex)
        for part in own:
            state = worker.state.open(last.id, part)
            with state.locked():
                values = last.values(part, rows[parts == part]).copy()
                found.append((_version(state.version, state.dirty), part, values))
    return found


def _version(version: Version, dirty: bool) -> Version:
    return (version[0], -1) if dirty else version


def _require_arrays(plan: Plan, query: str, parts: Sequence[int], *, partition: bool = False) -> None:
    """Check for all files before any is opened: opening makes them."""
    name = PARTITION if partition else plan.chain.embeddings
    for part in parts:
        if not (Path(plan.arrays) / query / str(name) / str(part) / "header").exists():
            raise NotVerified(
                f"there are no arrays of {name}, part {part}, in {plan.arrays} on its home: start the "
                "pipeline, which rebuilds them from the graph log"
            )
