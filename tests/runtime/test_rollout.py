"""Which models can replace one, what they are called, and which one a start gets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

from d3gnn import Alerts, GraphSchema, StreamingGNN
from d3gnn.events import EventBatch
from d3gnn.nn import GAT, GCN, GNN, Classifier, GATConv, GraphSAGE, LinkPredictor, Regressor, SAGEConv
from d3gnn.oracle import Oracle, embeddings
from d3gnn.runtime.log_coordinator import LogCoordinator
from d3gnn.runtime.rollout import ModelMismatch, current_model
from d3gnn.runtime.verify import held_embeddings, stored_plan
from d3gnn.store.runs import begin_run
from d3gnn.store.store import Store, StoreError
from d3gnn.testing import random_batches
from d3gnn.testing.in_process import InProcessPipeline, route

TYPES = {"src": "bigint"}


class Plus(SAGEConv):
    """A layer of the user."""


def started(folder: Path, model: GNN, **settings: Any) -> StreamingGNN:
    gnn = StreamingGNN(model, store=folder / "store", **settings)
    gnn.plan(TYPES)
    return gnn


def sage(**changes: Any) -> GNN:
    return GraphSAGE(**{"in_channels": 3, "hidden_channels": 8, "num_layers": 2, "out_channels": 4} | changes)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (sage(num_layers=3), "it has 3 layers, not 2"),
        (sage(in_channels=5), "it takes 5 numbers per vertex, not 3"),
        (GCN(3, 8, 2, 4), "it has layers that normalise by degrees"),
        (GAT(3, 8, 2, 4, v2=True), "it has messages that depend on the destination"),
        (GNN([SAGEConv(3, 8), SAGEConv(8, 4)], Classifier(nn.Linear(4, 2))), "it has a head for vertices"),
        (GNN([SAGEConv(3, 8), SAGEConv(8, 4)], LinkPredictor(edges=False)), "it has a head for pairs"),
        (GNN([GATConv(3, 8, edge_dim=2), SAGEConv(8, 4)]), "it takes 2 numbers per edge, not 0"),
        (GNN([Plus(3, 8), SAGEConv(8, 4)]), r"its class .*Plus did not come to the workers"),
    ],
    ids=str,
)
def test_a_model_that_needs_other_operators_is_refused(tmp_path: Path, model: GNN, message: str) -> None:
    gnn = started(tmp_path, sage())
    with pytest.raises(ModelMismatch, match=rf"version 1 \(v1\).*{message}.*Stop the query, and start it"):
        gnn.deploy(model)
    assert len(gnn.models()) == 1, "the model came to the store"


def test_alerts_by_class_need_a_classifier(tmp_path: Path) -> None:
    layers = [SAGEConv(3, 8)]
    gnn = started(tmp_path, GNN(layers, Classifier(nn.Linear(8, 2))), alerts=Alerts(classes=[1]))
    with pytest.raises(ModelMismatch, match="the alerts need a Classifier"):
        gnn.deploy(GNN(layers, Regressor(nn.Linear(8, 1))))
    gnn.deploy(GNN(layers, Classifier(nn.Linear(8, 3))))


def test_other_widths_and_aggregators_are_accepted(tmp_path: Path) -> None:
    gnn = started(tmp_path, sage())
    assert gnn.deploy(sage(hidden_channels=32, out_channels=16, aggr="max")).version == 2
    assert gnn.deploy(GNN([SAGEConv(3, 8), SAGEConv(8, 4, "max,mean")])).version == 3


def test_names_and_numbers_survive_a_rollback(tmp_path: Path) -> None:
    first, second = sage(seed=1), sage(seed=2)
    gnn = started(tmp_path, first)
    assert gnn.deploy(second, name="june") == gnn.deploy("june") == gnn.deploy(2)
    assert gnn.deploy(first, name="may").version == gnn.deploy("may").version == 1
    assert [(each.version, each.name, each.digest) for each in gnn.models()] == [
        (1, "may", first.digest),
        (2, "june", second.digest),
    ]
    for name, message in [
        ("june", "version 2, another model"),
        ("3", "not digits alone"),
        ("a/b", "letters"),
    ]:
        with pytest.raises(ValueError, match=message):
            gnn.deploy(sage(seed=3), name=name)
    with pytest.raises(ValueError, match="with the name 'june'"):
        gnn.deploy(second, name="july")
    with pytest.raises(ValueError, match=r"no model 'july' .* it has 1 \(may\), 2 \(june\)"):
        gnn.deploy("july")
    with pytest.raises(FileNotFoundError, match="no pipeline has started on it"):
        StreamingGNN(first, store=tmp_path / "new").deploy(second)


def test_a_start_keeps_what_was_deployed_unless_it_has_another_model(tmp_path: Path) -> None:
    first, second, third = (sage(seed=seed) for seed in (1, 2, 3))
    store = Store(str(tmp_path / "store"))
    gnn = started(tmp_path, first)
    gnn.deploy(second)
    assert gnn.plan(TYPES).model_version == current_model(store).version == 2
    assert started(tmp_path, third).plan(TYPES).model_version == 3
    assert started(tmp_path, first).plan(TYPES).model_version == 1
    gnn.deploy(third)
    assert (
        started(tmp_path, first, schema=GraphSchema(features={"x": 3}, missing="hash"))
        .plan(TYPES)
        .model_version
        == 3
    )


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    gnn = started(tmp_path, sage(seed=1))
    gnn.deploy(sage(seed=2), name="june")
    for name in ("deployed/000002.json", "names/000002.json"):
        path = tmp_path / "store" / "models" / name
        whole = path.read_bytes()
        for damaged in (whole.replace(b"2", b"1", 1).replace(b"june", b"juno"), whole[:-9], b""):
            path.write_bytes(damaged)
            with pytest.raises(StoreError, match=f"models/{name} in the store .* is damaged"):
                gnn.deploy("june")
        path.write_bytes(whole)


@pytest.mark.parametrize("seed", [1, 8, 23])
@pytest.mark.parametrize("tasks", [1, 2])
def test_workers_take_turns_at_models_of_other_widths(tmp_path: Path, seed: int, tasks: int) -> None:
    # A worker that has arrays of one model open rebuilds after another worker wrote those of another model.
    schema, rng = GraphSchema(features={"x": 3}), np.random.default_rng(seed)
    models = [sage(seed=3), sage(hidden_channels=12, out_channels=6, aggr="max"), sage(out_channels=2)]
    pipeline = InProcessPipeline(tmp_path, schema, model=models[0], tasks=tasks)
    gnn = StreamingGNN(
        models[0], store=pipeline.store, arrays=pipeline.arrays, schema=schema, name="test", tasks=tasks
    )
    query_run = begin_run(Store(str(pipeline.store)))
    workers = [pipeline.worker(query_run) for _ in range(2)]
    coordinators = [LogCoordinator(worker) for worker in workers]
    oracle, model, batch = Oracle(schema), models[0], 0

    def run(events: EventBatch | None, commands: set[str]) -> None:
        nonlocal batch
        which = int(rng.integers(2))
        sent = [coordinators[which].run(batch, events, commands).packets]
        for name in pipeline.plan().chain.operators if tasks > 1 else ():
            worker = workers[int(rng.integers(2))]
            sent = [worker.run(name, part, route(sent, part), len(sent)).packets for part in range(2)]
        batch += 1

    for events in random_batches(schema, seed, 8, 40, 200, delete_vertex=0.05):
        commands = set()
        if rng.random() < 0.6:
            model = models[int(rng.integers(3))]
            gnn.deploy(model)
            commands = {"deploy"}
            if rng.random() < 0.5:
                run(None, commands)
                commands = set()
        oracle.apply(events, 1)
        run(events, commands)
        expected = embeddings(model, oracle)
        held = held_embeddings(stored_plan(str(pipeline.store), arrays=str(pipeline.arrays)), list(expected))
        for id, embedding in expected.items():
            np.testing.assert_allclose(held[id], embedding, rtol=1e-4, atol=1e-5)
    for worker in workers:
        worker.close()
