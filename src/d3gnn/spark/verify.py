"""Recompute from the graph log, and compare with the embeddings that a pipeline holds."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from d3gnn.events import GraphSchema, Key, Keys, keys_of
from d3gnn.kernel.operators import Vertex
from d3gnn.kernel.partitioners import make_partitioner
from d3gnn.kernel.reference import Oracle, forward, relative_error
from d3gnn.nn.heads import PairHead
from d3gnn.spark.board import pending
from d3gnn.spark.graph_log import GraphLog
from d3gnn.spark.models import get_model, newest_model
from d3gnn.spark.runtime import STORE, Plan, Runtime, absolute, default_arrays
from d3gnn.spark.store import Store
from d3gnn.types import Bools, Floats


@dataclass(frozen=True)
class Verdict:
    """What a comparison found."""

    batch: int  # the newest batch of the log
    vertices: int
    edges: int
    max_relative_error: float
    missing: int  # vertices of the log that the pipeline does not hold
    pending: int = 0  # vertices that wait in windows: until they are sent, others are not what they will be


def stored_plan(folder: str | Path, arrays: str | None = None) -> Plan:
    """The plan of the pipeline whose checkpoint, or store, this folder is."""
    inside = Path(folder) / STORE
    store = Store(absolute(inside if inside.is_dir() else folder))
    if not store.exists("settings.json"):
        raise FileNotFoundError(f"{folder} is neither a checkpoint of a d3gnn pipeline nor a store of one")
    settings = store.settings
    path, version = newest_model(store)
    model = get_model(store, path)
    return Plan(
        name=settings["name"],
        store=store.uri,
        arrays=arrays or default_arrays(settings["name"], store.uri),
        parts=settings["parts"],
        partitioner=make_partitioner(**settings["partitioner"]),
        schema=GraphSchema(**settings["schema"]),
        model=path,
        model_version=version,
        layers=len(model.layers),
        degrees=model.degrees is not None,
        destinations=model.reads_destinations,
        pairs=isinstance(model.head, PairHead),
    )


def verify(plan: Plan) -> Verdict:
    """Compare the arrays of a pipeline, which must be idle, with a static forward pass over its log."""
    store = Store(plan.store)
    log = GraphLog(store)
    batch = log.last()
    if batch is None:
        return Verdict(-1, 0, 0, 0.0, 0)
    oracle = Oracle(plan.schema)
    for entry in log.entries(batch):
        oracle.apply(entry.events)
    src, dst = oracle.edge_index()
    with closing(Runtime(plan, store.owner())) as runtime:
        expected = forward(runtime.model, oracle.inputs(), src, dst, oracle.edge_values())
        got, there = held(runtime, keys_of(oracle.vertices))
    error = relative_error(got[there], expected[there]) if there.any() else 0.0
    return Verdict(batch, len(expected), len(src), error, int((~there).sum()), pending(plan.arrays))


def held_embeddings(plan: Plan, ids: Sequence[Key]) -> dict[Key, Floats]:
    """The embeddings that a pipeline, which must be idle, holds of those of these vertices that it has."""
    with closing(Runtime(plan, Store(plan.store).owner())) as runtime:
        got, there = held(runtime, keys_of(list(ids)))
    return {id: got[i] for i, id in enumerate(ids) if there[i]}


def held(runtime: Runtime, ids: Keys) -> tuple[Floats, Bools]:
    """Embeddings by vertex, and which vertices there are."""
    plan = runtime.plan
    part, row = runtime.partition.locate(ids)
    last = runtime.operator(f"vertex-{plan.layers}")
    assert isinstance(last, Vertex)
    got = np.full((len(ids), runtime.model.out_width), np.nan, np.float32)
    for p in range(plan.parts):
        here = part == p
        if here.any():
            got[here] = last.values(p, row[here])
    return got, part >= 0
