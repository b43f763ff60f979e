"""Compare the embeddings that a pipeline holds with a recomputation from its graph log."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from d3gnn.events import GraphSchema, Key
from d3gnn.events.keys import Keys, keys_of
from d3gnn.kernel.operators import ChainSpec, OperatorConfig, Vertex
from d3gnn.kernel.partitioners import make_partitioner
from d3gnn.oracle import Oracle, forward, relative_error
from d3gnn.runtime.config_fingerprint import ConfigFingerprint
from d3gnn.runtime.lookup import vertex_values
from d3gnn.runtime.plan import Plan, absolute, default_arrays
from d3gnn.runtime.rollout import current_model
from d3gnn.runtime.timers import pending
from d3gnn.runtime.worker import Worker
from d3gnn.store.graph_log import GraphLog, open_store
from d3gnn.store.models import find_model, get_model
from d3gnn.store.store import Store
from d3gnn.types import Bools, Floats


@dataclass(frozen=True)
class Verdict:
    """The result of a comparison."""

    #: The newest batch of the log; -1 for an empty log.
    batch: int
    vertices: int
    edges: int
    max_relative_error: float
    #: Vertices of the log that the pipeline does not hold.
    missing: int
    #: Vertices that are pending in windows: until they are sent, embeddings near them are out of date.
    pending: int = 0


def stored_plan(folder: str | Path, arrays: str | None = None) -> Plan:
    """The plan of a pipeline, from its checkpoint or its store."""
    store = open_store(absolute(folder))
    settings = store.settings
    arrays = arrays or default_arrays(settings["name"], store.uri)
    # What the arrays were built with; a deployment after that has not reached the query yet.
    built_with = ConfigFingerprint.peek(f"{arrays}/{store.owner()}/partition/0")
    held_model = built_with.model if built_with else 0
    current = find_model(store, held_model) if held_model else current_model(store)
    model = get_model(store, current.path)
    return Plan(
        name=settings["name"],
        store=store.uri,
        arrays=arrays,
        partitioner=make_partitioner(**settings["partitioner"]),
        chain=ChainSpec.of(model),
        config=OperatorConfig(settings["parts"], GraphSchema(**settings["schema"])),
        model=current.path,
        model_version=current.version,
    )


def verify(checkpoint: str | Path | Plan, *, arrays: str | None = None) -> Verdict:
    """Compare a pipeline's embeddings with a static forward pass over its graph log.

    The pipeline must not be in a batch.

    checkpoint:
        The pipeline's checkpoint, or its store.
    arrays:
        Folder of the pipeline's arrays, if it is not the default one.
    """
    plan = checkpoint if isinstance(checkpoint, Plan) else stored_plan(checkpoint, arrays)
    store = Store(plan.store)
    log = GraphLog(store)
    batch = log.last()
    if batch is None:
        return Verdict(-1, 0, 0, 0.0, 0)
    oracle = Oracle(plan.config.schema)
    for entry in log.entries(batch):
        oracle.apply(entry.events)
    src, dst = oracle.edge_index()
    with closing(Worker(plan, store.owner())) as worker:
        expected = forward(worker.model, oracle.inputs(), src, dst, oracle.edge_values())
        embeddings, exists = held(worker, keys_of(oracle.vertices))
    error = relative_error(embeddings[exists], expected[exists]) if exists.any() else 0.0
    return Verdict(batch, len(expected), len(src), error, int((~exists).sum()), pending(plan.arrays))


def held_embeddings(plan: Plan, ids: Sequence[Key]) -> dict[Key, Floats]:
    """The embeddings of those of these vertices that a pipeline, which must not be in a batch, holds."""
    with closing(Worker(plan, Store(plan.store).owner())) as worker:
        embeddings, exists = held(worker, keys_of(list(ids)))
    return {id: embeddings[i] for i, id in enumerate(ids) if exists[i]}


def held(worker: Worker, ids: Keys) -> tuple[Floats, Bools]:
    """Embeddings by vertex, NaN for missing ones, and which vertices exist."""
    last = worker.operator(worker.plan.chain.embeddings)
    assert isinstance(last, Vertex)
    return vertex_values(worker.partition, last, ids)
