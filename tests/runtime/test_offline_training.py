"""Training on the graph log of a store: versions, their records, and the commands."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from d3gnn import GraphSchema, LocalEngine, Training
from d3gnn.cli import app
from d3gnn.events import Event, edge, feature, label
from d3gnn.nn import GNN, Classifier, GraphSAGE
from d3gnn.runtime.offline_training import train_store
from d3gnn.runtime.rollout import current_model
from d3gnn.store.check import check_store
from d3gnn.store.models import get_model, list_models
from d3gnn.store.store import Store
from d3gnn.store.training_records import training_record
from d3gnn.testing.in_process import InProcessPipeline

SCHEMA = GraphSchema(features={"x": 2})
BATCHES: list[list[Event]] = [
    [feature(i, [i % 2, 1.0], time=1) for i in range(20)],
    [edge(i, (i + 2) % 20, time=2) for i in range(20)],
    [label(i, i % 2, time=3) for i in range(20)],
]


def model() -> GNN:
    return GraphSAGE(2, 8, 2, 2, seed=3, head=Classifier())


@pytest.fixture
def pipeline(tmp_path: Path) -> InProcessPipeline:
    made = InProcessPipeline(tmp_path, SCHEMA, model=model())
    for number, batch in enumerate(BATCHES):
        made.run(number, batch)
    return made


def run(*arguments: str) -> Any:
    ran = CliRunner().invoke(app, [*arguments, "--json"])
    assert ran.exit_code == 0, ran.output
    return json.loads(ran.stdout)


def test_a_store_is_trained_as_a_local_engine_is(pipeline: InProcessPipeline) -> None:
    settings = Training(epochs=10, holdout=0.0, seed=5)
    store = Store(pipeline.store)
    done = train_store(store, settings, name="june")
    engine = LocalEngine(model(), parts=2, schema=SCHEMA)
    for batch in BATCHES:
        engine.apply(batch)
    engine.train(settings)
    assert done.version is not None
    trained = get_model(store, done.version.path)
    for key, weight in engine.trainable.state_dict().items():
        assert weight == pytest.approx(trained.state_dict()[key].numpy(), rel=1e-4, abs=1e-5)
    record = training_record(store, done.version.version)
    assert record is not None
    assert (record.parent, record.batch, record.trained_on, record.seed) == (1, 2, 20, 5)
    assert training_record(store, 1) is None
    assert [each.name for each in list_models(store)] == ["v1", "june"]
    assert current_model(store).version == 1, "it is not deployed"
    report = check_store(store)
    assert report.models == 2
    assert not report.damages
    assert not report.strays


def test_a_deployed_version_is_used_by_the_pipeline(pipeline: InProcessPipeline) -> None:
    done = train_store(Store(pipeline.store), Training(epochs=5, holdout=0.0), deploys=True)
    assert done.version == current_model(Store(pipeline.store))
    pipeline.run(3, [edge(1, 7, time=9)], ["deploy"])
    assert pipeline.verify().max_relative_error < 1e-5


def test_a_worse_version_is_not_kept(pipeline: InProcessPipeline) -> None:
    store = Store(pipeline.store)
    train_store(store, Training(epochs=40, holdout=0.0), deploys=True)
    away = partial(torch.optim.SGD, maximize=True)
    done = train_store(store, Training(epochs=30, lr=1.0, holdout=0.5, optimizer=away))
    assert done.version is None
    assert len(list_models(store)) == 2


def test_the_commands(pipeline: InProcessPipeline, tmp_path: Path) -> None:
    store = str(pipeline.store)
    done = run("train", "--store", store, "--epochs", "5", "--holdout", "0", "--name", "june", "--deploy")
    assert (done["parent"], done["version"], done["deployed"], len(done["epochs"])) == (1, 2, True, 5)
    shown = run("models", "show", "june", "--store", store)
    assert shown["training"]["epochs"] == 5
    assert [each["current"] for each in run("models", "--store", store)["models"]] == [False, True]
    file = tmp_path / "june.safetensors"
    ran = CliRunner().invoke(app, ["models", "export", "2", "--store", store, "--to", str(file)])
    assert ran.exit_code == 0, ran.output
    assert GNN.load(file).digest == list_models(Store(store))[1].digest
    for wrong in (["models", "drop", "2"], ["models", "export", "2"], ["models", "show", "9"]):
        ran = CliRunner().invoke(app, [*wrong, "--store", store])
        assert ran.exit_code == 2, ran.output
