"""Recompute from the graph log, and compare with the embeddings that a pipeline holds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from d3gnn.events import GraphSchema, keys_of
from d3gnn.kernel.partitioners import make_partitioner
from d3gnn.kernel.reference import Oracle, forward, relative_error
from d3gnn.spark.graph_log import GraphLog
from d3gnn.spark.models import get_model, newest_model
from d3gnn.spark.runtime import STORE, Plan, Runtime, absolute, default_arrays
from d3gnn.spark.store import Store


@dataclass(frozen=True)
class Verdict:
    """What a comparison found."""

    batch: int  # the newest batch of the log
    vertices: int
    edges: int
    max_relative_error: float
    missing: int  # vertices of the log that the pipeline does not hold


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
    )


def verify(plan: Plan) -> Verdict:
    """Compare the arrays of a pipeline, which must be idle, with a static forward pass over its log."""
    store = Store(plan.store)
    log, runtime = GraphLog(store), Runtime(plan, store.owner())
    batch = log.last()
    if batch is None:
        return Verdict(-1, 0, 0, 0.0, 0)
    oracle = Oracle(plan.schema)
    for entry in log.entries(batch):
        oracle.apply(entry.events)
    src, dst = oracle.edge_index()
    expected = forward(runtime.model, oracle.inputs(), src, dst)
    part, row = runtime.partition.locate(keys_of(oracle.vertices))
    got = np.full_like(expected, np.nan)
    last = runtime.operator(f"vertex-{plan.layers}")
    for p in range(plan.parts):
        here = part == p
        if here.any():
            got[here] = last.state(p).rows.value[row[here]]
    held = part >= 0
    error = relative_error(got[held], expected[held]) if held.any() else 0.0
    return Verdict(batch, len(expected), len(src), error, int((~held).sum()))
