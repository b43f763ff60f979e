"""Compare the embeddings that a pipeline holds with a recomputation from its graph log."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from d3gnn.events import GraphSchema, Key
from d3gnn.events.keys import Keys, keys_of
from d3gnn.kernel.operators import PARTITION, ChainSpec, OperatorConfig, Vertex
from d3gnn.kernel.partitioners import make_partitioner
from d3gnn.nn.model import GNN
from d3gnn.oracle import Oracle, forward, relative_error
from d3gnn.runtime.between_batches import NotVerified, between_batches
from d3gnn.runtime.config_fingerprint import ConfigFingerprint
from d3gnn.runtime.damaged_arrays import COMPUTE_ERRORS, arrays_failed
from d3gnn.runtime.log_position import check_position
from d3gnn.runtime.lookup import vertex_values
from d3gnn.runtime.plan import Plan, absolute, arrays_on_host, recorded_homes
from d3gnn.runtime.rollout import current_model
from d3gnn.runtime.timers import pending
from d3gnn.runtime.worker import Worker
from d3gnn.store.graph_log import GraphLog, open_store
from d3gnn.store.models import find_model, get_model
from d3gnn.store.store import QUERY, Store, StoreDamaged
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


#: Of an empty log.
NOTHING = Verdict(-1, 0, 0, 0.0, 0)


def stored_plan(folder: str | Path, arrays: str | Path | None = None) -> Plan:
    """The plan of a pipeline, from its checkpoint or its store."""
    store = open_store(absolute(folder))
    settings = store.settings
    folder_of_arrays = arrays_on_host(store) if arrays is None else absolute(arrays)
    # What the arrays were built with; a deployment after that has not reached the query yet.
    built_with = ConfigFingerprint.peek(f"{folder_of_arrays}/{store.owner()}/partition/0")
    held_model = built_with.model if built_with else 0
    current = find_model(store, held_model) if held_model else current_model(store)
    model = get_model(store, current.path)
    return Plan(
        name=settings["name"],
        store=store.uri,
        arrays=folder_of_arrays,
        partitioner=make_partitioner(**settings["partitioner"]),
        chain=ChainSpec.of(model),
        config=OperatorConfig(settings["parts"], GraphSchema(**settings["schema"])),
        model=current.path,
        model_version=current.version,
    )


def verify(checkpoint: str | Path | Plan, *, arrays: str | Path | None = None) -> Verdict:
    """Compare a pipeline's embeddings with a static forward pass over its graph log.

    A running pipeline is compared as it is between two batches, and waits for a moment. Raises `NotVerified`
    if there are no embeddings to compare, or if a crash interrupted the last batch.

    checkpoint:
        The pipeline's checkpoint, or its store.
    arrays:
        Folder of the pipeline's arrays, if it is neither the one of its last start nor the default one.
    """
    plan = checkpoint if isinstance(checkpoint, Plan) else stored_plan(checkpoint, arrays)
    store = Store(plan.store)
    if homes := recorded_homes(store):
        raise NotVerified(
            f"the pipeline runs on a cluster, and its embeddings are in the memory of {', '.join(homes)}: "
            "name the cluster (d3gnn verify --master spark://..., or d3gnn.spark.verify.verify_on_cluster)"
        )
    log = GraphLog(store)
    batch = log.last()
    if batch is None:
        return NOTHING
    oracle, query = replayed(plan, log, batch), owner_of(store)
    with between_batches(plan, query) as (worker, version):
        check_position(worker.state.open(PARTITION, 0), log)
        batch = catch_up(oracle, log, batch, version[1] - 1, str(worker.folder))
        model = worker.model
        try:
            embeddings, exists = held(worker, keys_of(oracle.vertices))
        except COMPUTE_ERRORS as failed:
            raise arrays_failed(worker.folder, failed) from failed
        waiting = pending(worker.folder)
    return compared(oracle, model, batch, embeddings, exists, waiting)


def replayed(plan: Plan, log: GraphLog, batch: int) -> Oracle:
    """The graph after a batch, by the log."""
    oracle = Oracle(plan.config.schema, replays=True)
    for entry in log.entries(batch):
        oracle.apply(entry.events)
    return oracle


def owner_of(store: Store) -> str:
    """The query that owns a store, which has a graph log."""
    if query := store.owner():
        return query
    raise StoreDamaged.of(QUERY, store.uri, "it is missing, but the store has a graph log")


def compared(
    oracle: Oracle, model: GNN, batch: int, embeddings: Floats, exists: Bools, waiting: int
) -> Verdict:
    """The embeddings of the vertices of a graph, compared with a forward pass."""
    src, dst = oracle.edge_index()
    expected = forward(model, oracle.inputs(), src, dst, oracle.edge_values())
    error = relative_error(embeddings[exists], expected[exists]) if exists.any() else 0.0
    return Verdict(batch, len(expected), len(src), error, int((~exists).sum()), waiting)


def catch_up(oracle: Oracle, log: GraphLog, batch: int, held: int, arrays: str) -> int:
    """Apply to the oracle, which is at `batch`, what a running pipeline has processed meanwhile."""
    newest = log.last()
    if held != newest:
        raise NotVerified(
            f"the arrays in {arrays} are at batch {held}, but the graph log ends at batch {newest}: start "
            "the pipeline, which rebuilds them from the log, then verify again"
        )
    for number in range(batch + 1, held + 1):
        if (read := log.read(number)) is not None:
            oracle.apply(read[0].events)
    return held


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
