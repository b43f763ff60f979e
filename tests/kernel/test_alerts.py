"""Predictions are exact after every batch, and alerts are the predictions that pass the filter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch import nn

from d3gnn import GraphSchema, LocalEngine
from d3gnn.events import delete_vertex, edge, feature
from d3gnn.kernel.alerts import Alerts
from d3gnn.nn import GNN, Classifier, Regressor, SAGEConv
from d3gnn.oracle import Oracle, embeddings
from d3gnn.testing import event_batches, random_batches
from d3gnn.windows import Tumbling


def classifier(seed: int = 1) -> GNN:
    torch.manual_seed(seed)
    return GNN([SAGEConv(3, 4, act="relu"), SAGEConv(4, 4)], Classifier(nn.Linear(4, 3)))


def feature_regressor() -> GNN:
    """A model that predicts the feature of a vertex without edges."""
    model = GNN([SAGEConv(1, 1)], Regressor())
    with torch.no_grad():
        layer = model.layers[0]
        assert isinstance(layer, SAGEConv)
        layer.lin_l.bias.zero_()
        layer.lin_r.weight.fill_(1.0)
    return model


def expected(model: GNN, oracle: Oracle) -> dict[Any, tuple[int, float]]:
    """The class of every vertex and its probability, computed from scratch."""
    found = embeddings(model, oracle)
    assert model.head is not None
    if not found:
        return {}
    with torch.inference_mode():
        logits = model.head.net(torch.from_numpy(np.stack(list(found.values()))))
        probability = torch.softmax(logits, 1).numpy()
    return {id: (int(row.argmax()), float(row.max())) for id, row in zip(found, probability, strict=True)}


ALERTS = [
    None,
    Alerts(threshold=0.5),
    Alerts(classes=[1]),
    Alerts(changed_class=True),
    Alerts(threshold=0.45, classes=[0, 2], changed_class=True),
]


@settings(max_examples=40)
@given(data=st.data())
def test_alerts_equal_a_static_model_with_a_filter(data: st.DataObject) -> None:
    schema = GraphSchema(features={"x": 3}, edges=data.draw(st.sampled_from(["simple", "multi"])))
    alerts = data.draw(st.sampled_from(ALERTS), "alerts")
    model = classifier()
    engine = LocalEngine(model, parts=data.draw(st.integers(1, 3), "parts"), schema=schema, alerts=alerts)
    oracle = Oracle(schema)
    table: dict[Any, int] = {}  # the class last emitted for a vertex, while it passes the filter
    emitted: set[Any] = set()  # vertices with an emitted row
    again: set[Any] = set()  # deleted and created again in one batch: a tombstone says nothing wrong
    now: dict[Any, tuple[int, float]] = {}
    for batch in data.draw(event_batches(schema, "int"), "batches"):
        oracle.apply(batch)
        out = {update.id: update for update in engine.apply(batch)}
        before, now = now, expected(model, oracle)
        deletes = {e.src for e in batch if (e.op, e.element) == ("delete", "vertex")}
        again |= deletes & before.keys() & now.keys()
        for id, update in out.items():
            if update.deleted:
                assert id not in now
                assert id in emitted | again
                emitted.discard(id)
                again.discard(id)
                table.pop(id, None)
                continue
            assert update.prediction == now[id][0]
            assert update.score == pytest.approx(now[id][1], abs=1e-5)
            if alerts is not None:
                assert passes(alerts, *now[id])
                rebuild = any((e.op, e.element, e.src) == ("delete", "vertex", id) for e in batch)
                assert rebuild or not (alerts.changed_class and table.get(id) == now[id][0])
            table[id] = now[id][0]
            emitted.add(id)
        assert emitted <= now.keys(), "a vertex was deleted without a tombstone"
        for id, (prediction, score) in now.items():
            if alerts is None or passes(alerts, prediction, score, margin=1e-5):
                assert table.get(id) == prediction, "a prediction that passes the filter was not emitted"
            if alerts is not None and not passes(alerts, prediction, score, margin=-1e-5):
                table.pop(id, None)  # it may be emitted again


def passes(alerts: Alerts, prediction: int, score: float, margin: float = 0.0) -> bool:
    if alerts.threshold is not None and score < alerts.threshold + margin:
        return False
    return alerts.classes is None or prediction in alerts.classes


def test_an_alert_is_emitted_again_when_its_class_returns() -> None:
    model = GNN([SAGEConv(1, 2, root_weight=True)], Classifier())
    with torch.no_grad():
        layer = model.layers[0]
        assert isinstance(layer, SAGEConv)
        layer.lin_l.weight.zero_()
        layer.lin_l.bias.zero_()
        layer.lin_r.weight.copy_(torch.tensor([[0.0], [1.0]]))  # class 1 for x above 0
    engine = LocalEngine(model, schema=GraphSchema(features={"x": 1}), alerts=Alerts(0.9, [1], True))
    emitted = [
        [update.id for update in engine.apply([feature("a", [x], time=i)])]
        for i, x in enumerate([-5.0, 5.0, 6.0, 0.0, 7.0, 8.0])
    ]
    assert emitted == [[], ["a"], [], [], ["a"], []]
    engine.apply([feature("a", [-5.0], time=9)])
    assert [update.deleted for update in engine.apply([delete_vertex("a", time=9)])] == [True], (
        "it raised an alert"
    )
    engine.apply([feature("b", [-1.0], time=10)])
    assert not len(engine.apply([delete_vertex("b", time=11)])), "it never raised an alert"


@pytest.mark.parametrize("parts", [1, 3])
def test_an_alert_before_its_vertex_was_made_again_gets_a_tombstone(parts: int) -> None:
    """The batch that makes it again has no tombstone: the output has one row per id."""
    schema = GraphSchema(features={"x": 1})
    engine = LocalEngine(feature_regressor(), parts=parts, schema=schema, alerts=Alerts(5.0))
    assert len(engine.apply([feature(id, [10.0], time=1) for id in "ab"])) == 2
    # With an edge, its new master may be in another part.
    again = [delete_vertex("a", time=2), feature("a", [0.0], time=3), edge("z", "a", time=3)]
    assert not len(engine.apply(again)), "it is no alert now"
    assert not len(engine.apply([delete_vertex("a", time=4), edge("c", "a", time=5)]))
    assert [(u.id, u.deleted) for u in engine.apply([delete_vertex("a", time=6)])] == [("a", True)]
    engine.apply([feature("a", [0.0], time=7)])
    assert not len(engine.apply([delete_vertex("a", time=8)])), "readers know that it is gone"


@pytest.mark.parametrize("how", ["refreshed", "loaded"])
def test_alerts_before_a_rebuild_get_tombstones(how: str, tmp_path: Path) -> None:
    engine = LocalEngine(feature_regressor(), schema=GraphSchema(features={"x": 1}), alerts=Alerts(5.0))
    assert len(engine.apply([feature("a", [10.0], time=1), feature("b", [9.0], time=1)])) == 2
    assert not len(engine.apply([feature("a", [0.0], time=2)])), "it no longer passes the filter"
    if how == "refreshed":
        assert [update.id for update in engine.refresh()] == ["b"]
    else:
        engine.save(tmp_path)
        engine = LocalEngine.load(tmp_path)
    engine.apply([feature("c", [0.0], time=3)])
    tombstones = engine.apply([delete_vertex(id, time=4) for id in "abc"])
    assert sorted((update.id, update.deleted) for update in tombstones) == [("a", True), ("b", True)]


def test_a_drain_of_windows_emits_pending_alerts() -> None:
    model, schema = classifier(), GraphSchema(features={"x": 3})
    engine = LocalEngine(
        model, parts=2, schema=schema, window=Tumbling(1.0), alerts=Alerts(changed_class=True)
    )
    oracle = Oracle(schema)
    table: dict[Any, Any] = {}
    for i, batch in enumerate(random_batches(schema, seed=2, n_batches=8, batch_size=40, n_vertices=20)):
        oracle.apply(batch)
        for update in [*engine.apply(batch, clock=i * 100_000), *(engine.drain() if i == 7 else [])]:
            if update.deleted:
                del table[update.id]
            else:
                table[update.id] = update.prediction
    assert table == {id: prediction for id, (prediction, _) in expected(model, oracle).items()}


def test_a_saved_engine_keeps_its_head_and_alerts(tmp_path: Path) -> None:
    engine = LocalEngine(classifier(), alerts=Alerts(0.5, [1, 2], True))
    updates = engine.apply([edge(1, 2, time=1)])
    engine.save(tmp_path)
    loaded = LocalEngine.load(tmp_path)
    assert loaded.config.alerts == engine.config.alerts
    assert repr(loaded.model) == "GNN(3 -> SAGEConv(mean) 4 -> SAGEConv(mean) 4 -> Classifier)"
    again = LocalEngine(loaded.model, alerts=loaded.config.alerts).apply([edge(1, 2, time=1)])
    assert [(u.id, u.prediction, u.score) for u in again] == [(u.id, u.prediction, u.score) for u in updates]


def test_a_regressor_predicts_a_number() -> None:
    torch.manual_seed(2)
    model = GNN([SAGEConv(3, 4)], Regressor(nn.Linear(4, 1)))
    everything = LocalEngine(model).apply([edge(i, i + 1, time=1) for i in range(20)])
    assert everything.prediction is not None
    middle = float(np.median(everything.prediction))
    some = LocalEngine(model, alerts=Alerts(threshold=middle)).apply(
        [edge(i, i + 1, time=1) for i in range(20)]
    )
    assert {u.id for u in some} == {u.id for u in everything if u.score is not None and u.score >= middle}


@pytest.mark.parametrize("number", [0.5, -0.5, -1.5, -3.0, 3e9])
def test_every_predicted_number_gets_a_tombstone(number: float) -> None:
    engine = LocalEngine(feature_regressor(), schema=GraphSchema(features={"x": 1}), alerts=Alerts(-10.0))
    assert [update.prediction for update in engine.apply([feature("a", [number], time=1)])] == [number]
    assert [update.deleted for update in engine.apply([delete_vertex("a", time=2)])] == [True]


def test_settings_of_alerts_become_plain_numbers(tmp_path: Path) -> None:
    alerts = Alerts(np.float32(0.5), np.array([1, 2]))  # type: ignore[arg-type]
    assert alerts == Alerts(0.5, torch.tensor([1, 2]))  # type: ignore[arg-type]
    LocalEngine(classifier(), alerts=alerts).save(tmp_path)
    assert LocalEngine.load(tmp_path).config.alerts == Alerts(0.5, [1, 2])
    with pytest.raises(TypeError):
        Alerts(classes=[1.5])  # type: ignore[list-item]


def test_bad_settings_are_refused() -> None:
    plain = GNN([SAGEConv(3, 4)])
    with pytest.raises(ValueError, match="alerts need a model with a head"):
        LocalEngine(plain, alerts=Alerts(0.5))
    with pytest.raises(ValueError, match="classes and changed_class need a Classifier"):
        LocalEngine(GNN([SAGEConv(3, 4)], Regressor()), alerts=Alerts(changed_class=True))
    with pytest.raises(ValueError, match="at least one class"):
        Alerts(classes=[])
    with pytest.raises(ValueError, match="must be a number"):
        Alerts(threshold=float("nan"))
    with pytest.raises(TypeError, match="LSTM is not supported"):
        Classifier(nn.LSTM(2, 2))
