"""Training on the graph log of a store, without the pipeline: it may run meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from d3gnn.events import GraphSchema
from d3gnn.nn.model import GNN
from d3gnn.runtime.local import LocalEngine
from d3gnn.runtime.rollout import current_model, deploy
from d3gnn.store.graph_log import GraphLog
from d3gnn.store.models import ModelVersion, find_model, get_model, put_model
from d3gnn.store.store import Store
from d3gnn.store.training_records import TrainingRecord, record_training
from d3gnn.training.loop import Epoch, TrainedModel
from d3gnn.training.settings import Training


class OfflineTraining(NamedTuple):
    """The trained model; None as its version if it scores worse and is not kept."""

    trained: TrainedModel
    parent: ModelVersion
    version: ModelVersion | None


def train_store(
    store: Store,
    settings: Training,
    *,
    name: str | None = None,
    deploys: bool = False,
    progress: Callable[[Epoch], None] | None = None,
) -> OfflineTraining:
    """Train the current model of a store on the graph in its log, and add the result as a new version.

    With `deploys`, it becomes the current model: a running pipeline switches to it in its next batch.
    """
    log, parent = GraphLog(store), current_model(store)
    batch = log.last()
    snapshot = None if batch is None else log.snapshot(batch)
    if batch is None or snapshot is None:
        raise ValueError(f"the graph log of the store {store.uri} is empty: there is nothing to train on")
    model = get_model(store, parent.path)
    engine = LocalEngine(model, parts=store.settings["parts"], schema=GraphSchema(**store.settings["schema"]))
    engine.restore(snapshot)
    trained = engine.train(settings, progress=progress).trained
    if trained.held_out and not (trained.is_better or settings.keep_worse):
        return OfflineTraining(trained, parent, None)
    return OfflineTraining(
        trained, parent, _publish(store, trained, parent, batch, settings, name, deploys=deploys)
    )


def _publish(
    store: Store, trained: TrainedModel, parent: ModelVersion, batch: int, settings: Training,
    name: str | None, *, deploys: bool,
) -> ModelVersion:  # fmt: skip
    model: GNN = trained.model
    _, version = put_model(store, model, name)
    record = TrainingRecord(
        parent=parent.version, batch=batch, trained_on=trained.trained_on, held_out=trained.held_out,
        tested_on=trained.tested_on, before=trained.before, after=trained.after, test=trained.test,
        epochs=len(trained.epochs), loss=trained.epochs[-1].loss, seed=settings.seed,
        seconds=trained.seconds, settings=repr(settings), at=time.time_ns() // 1000,
    )  # fmt: skip
    record_training(store, version, record)
    return deploy(store, version) if deploys else find_model(store, version)
