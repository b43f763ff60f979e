"""LocalEngine.train: the same weights as plain PyTorch on the whole graph, whatever the parts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from d3gnn import GraphSchema, LocalEngine, Training, events
from d3gnn.events import Event
from d3gnn.nn import GAT, GCN, GIN, GNN, Classifier, GraphSAGE, Regressor, SAGEConv, Stage
from d3gnn.oracle import Oracle, relative_error
from d3gnn.testing import random_batches
from d3gnn.training.loop import Epoch

SCHEMA = GraphSchema(features={"x": 3}, missing="hash")
# Without eps, Adam makes steps of full length out of rounding, where a gradient is 0.
ALL = Training(holdout=0.0, epochs=5, optimizer=partial(torch.optim.Adam, eps=1e-3))


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def stream(labels: int = 20, classes: int = 3) -> list[list[Event]]:
    batches: list[Any] = list(random_batches(SCHEMA, seed=7, n_batches=3, batch_size=80, n_vertices=30))
    batches.append([events.label(i, i % classes, time=10**6) for i in range(labels)])
    return batches


def made(
    model: GNN, parts: int = 1, batches: list[Any] | None = None, **settings: Any
) -> tuple[LocalEngine, Oracle]:
    engine = LocalEngine(model, parts=parts, schema=SCHEMA, **settings)
    oracle = Oracle(SCHEMA)
    for batch in batches or stream():
        engine.apply(batch, clock=1)
        oracle.apply(batch, 1)
    return engine, oracle


def model(head: bool = True, **settings: Any) -> GNN:
    return GraphSAGE(3, 8, 2, 3, seed=1, head=Classifier() if head else None, **settings)


def whole(oracle: Oracle) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(oracle.inputs()), torch.from_numpy(np.stack(oracle.edge_index()))


def assert_exact(engine: LocalEngine, oracle: Oracle) -> None:
    expected = engine.trainable.prepared()(*whole(oracle)).numpy()
    assert relative_error(engine.embeddings(oracle.vertices), expected) <= 1e-5


def weights(engine: LocalEngine) -> Tensor:
    return torch.cat([weight.detach().reshape(-1) for weight in engine.trainable.parameters()])


def trained_weights(parts: int, training: Training, make: Any = model) -> Tensor:
    engine, oracle = made(make(), parts)
    engine.train(training)
    assert_exact(engine, oracle)
    return weights(engine)


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_weights_equal_those_of_plain_torch(parts: int) -> None:
    plain = model()
    engine, oracle = made(plain, parts)
    labels = {id: value[0] for id, value in oracle.labels.items() if id in oracle.vertices}
    rows = torch.tensor([oracle.vertices.index(id) for id in labels])
    wanted = torch.tensor([int(value) for value in labels.values()])
    optimizer, losses = torch.optim.Adam(plain.parameters(), lr=0.02, weight_decay=1e-3), []
    for _ in range(20):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(plain(*whole(oracle))[rows], wanted)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
    seen: list[Epoch] = []
    result = engine.train(Training(epochs=20, lr=0.02, weight_decay=1e-3, holdout=0.0), progress=seen.append)
    assert [epoch.loss for epoch in seen] == pytest.approx(losses, rel=1e-4)
    expected = torch.cat([weight.detach().reshape(-1) for weight in plain.parameters()])
    torch.testing.assert_close(weights(engine), expected, rtol=1e-4, atol=1e-5)
    assert result.used
    assert result.trained.trained_on == len(labels)
    assert_exact(engine, oracle)


SETTINGS = {
    "batches": Training(holdout=0.0, epochs=4, batch_size=5),
    "dropout": Training(holdout=0.0, epochs=4, dropout=0.5),
    "held out": Training(holdout=0.3, epochs=6, patience=2, keep_worse=True),
    "clip": Training(holdout=0.0, epochs=4, clip=0.01, optimizer=partial(torch.optim.SGD, momentum=0.9)),
    "schedule": Training(
        holdout=0.0, epochs=4, schedule=partial(torch.optim.lr_scheduler.StepLR, step_size=2, gamma=0.1)
    ),
    "balanced": Training(holdout=0.0, epochs=4, class_weights="balanced"),
    "weighted": Training(holdout=0.0, epochs=4, class_weights=[1, 5, 0.5], test=0.2),
}


@pytest.mark.parametrize("training", SETTINGS.values(), ids=SETTINGS.keys())
def test_settings_do_not_depend_on_parts(training: Training) -> None:
    one = trained_weights(1, training)
    torch.testing.assert_close(trained_weights(3, training), one, rtol=1e-4, atol=1e-5)
    assert not torch.equal(one, trained_weights(1, ALL))


def normalised() -> GNN:
    torch.manual_seed(2)
    after = nn.Sequential(nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.4))
    return GNN([Stage(SAGEConv(3, 8), after), SAGEConv(8, 3, "max")], Classifier(nn.Linear(3, 3)))


@pytest.mark.parametrize(
    "make",
    [
        lambda: GCN(3, 8, 2, 3, seed=1),
        lambda: GIN(3, 8, 2, 3, seed=1, head=Classifier()),
        lambda: GAT(3, 8, 2, 3, heads=2, v2=True, seed=1, head=Classifier()),
        lambda: GraphSAGE(3, 8, 3, 3, seed=1, jk="cat", aggr="mean,max", head=Classifier()),
        normalised,
    ],
    ids=["gcn", "gin", "gatv2", "jumping knowledge", "batch-norm and dropout"],
)
def test_models_do_not_depend_on_parts(make: Any) -> None:
    expected = trained_weights(1, ALL, make)
    torch.testing.assert_close(trained_weights(4, ALL, make), expected, rtol=1e-4, atol=1e-5)


def test_the_stream_goes_on_after_a_training() -> None:
    batches = stream()
    engine, oracle = made(model(), 3, batches[:-1] + batches[-1:])
    engine.train(ALL)
    before = engine.batch
    more = [
        events.edge(1, 29, time=10**7),
        events.delete_vertex(3, time=10**7),
        events.label(5, 2, time=10**7),
    ]
    engine.apply(more, clock=2)
    oracle.apply(more, 2)
    assert engine.batch == before + 1
    assert_exact(engine, oracle)
    engine.train(ALL)
    assert_exact(engine, oracle)


def test_a_regression_and_a_custom_loss() -> None:
    def make() -> GNN:
        return GraphSAGE(3, 8, 2, 3, seed=1, head=Regressor(nn.Linear(3, 1)))

    def squared(predicted: Tensor, target: Tensor) -> Tensor:
        return ((predicted - target) ** 2)[:, 0]

    torch.manual_seed(5)
    first = make()
    engines = [made(first, parts)[0] for parts in (1, 2)]
    results = [
        engine.train(Training(holdout=0.0, epochs=10, loss=loss))
        for engine, loss in zip(engines, (None, squared), strict=True)
    ]
    torch.testing.assert_close(weights(engines[0]), weights(engines[1]), rtol=1e-4, atol=1e-5)
    assert results[0].trained.epochs[-1].loss < results[0].trained.epochs[0].loss


def test_a_worse_model_is_not_used() -> None:
    engine, _ = made(model())
    engine.train(Training(epochs=60, holdout=0.0))
    digest = engine.trainable.digest
    away = Training(epochs=1, lr=10.0, holdout=0.4)
    kept = engine.train(away)
    assert kept.trained.after < kept.trained.before
    assert not kept.used
    assert engine.trainable.digest == digest
    assert engine.train(Training(epochs=1, lr=10.0, holdout=0.4, keep_worse=True)).used
    assert engine.trainable.digest != digest


def test_test_labels_are_not_trained_on() -> None:
    schema = GraphSchema(features={"x": 3}, missing="hash", label_width=2)
    engine = LocalEngine(model(), schema=schema)
    engine.apply([events.edge(i, (i * 7 + 1) % 20, time=1) for i in range(20)])
    engine.apply([events.label(i, [i % 3, float(i % 4 == 0)], time=2) for i in range(20)])
    trained = engine.train(Training(epochs=3, holdout=0.0, test_column=1)).trained
    assert (trained.trained_on, trained.held_out, trained.tested_on) == (15, 0, 5)
    assert trained.test is not None


def test_labels_may_come_first_and_change_and_go() -> None:
    engine = LocalEngine(model(), parts=2, schema=SCHEMA)
    engine.apply([events.label(i, 1, time=1) for i in range(10)])
    with pytest.raises(ValueError, match="nothing to train on"):
        engine.train(ALL)
    engine.apply([events.edge(i, i + 1, time=2) for i in range(5)])
    assert engine.train(ALL).trained.trained_on == 6
    engine.apply([events.delete_label(2, time=3), events.delete_vertex(3, time=3)])
    assert engine.train(ALL).trained.trained_on == 4
    engine.forget([0])
    assert engine.train(ALL).trained.trained_on == 3


def test_wrong_settings_and_labels_are_refused() -> None:
    engine, _ = made(model(), batches=stream(classes=4))
    with pytest.raises(ValueError, match="3 classes"):
        engine.train(ALL)
    for wrong in (
        {"loss": "hinge"},
        {"epochs": 0},
        {"holdout": 1.0},
        {"patience": 3, "holdout": 0.0},
        {"lr": 0},
    ):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Training(**wrong)
    engine, _ = made(model())
    with pytest.raises(ValueError, match="class_weights has 2"):
        engine.train(Training(class_weights=[1, 2]))
    with pytest.raises(ValueError, match="one number for each"):
        engine.train(Training(loss=lambda predicted, target: predicted.sum()))
    with pytest.raises(ValueError, match="test_column"):
        engine.train(Training(test_column=1))
