"""What heads say is right after every batch, and alerts are those of it that are worth saying."""

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
from d3gnn.kernel.reference import Oracle, embeddings
from d3gnn.nn import GNN, SAGE, Classifier, Regressor
from d3gnn.testing import event_batches, random_batches
from d3gnn.windows import Tumbling


def classifier(seed: int = 1) -> GNN:
    torch.manual_seed(seed)
    return GNN([SAGE(3, 4, activation="relu"), SAGE(4, 4)], Classifier(nn.Linear(4, 3)))


def the_feature_itself() -> GNN:
    """Says the feature of a vertex without edges."""
    model = GNN([SAGE(1, 1)], Regressor())
    with torch.no_grad():
        layer = model.layers[0]
        assert isinstance(layer, SAGE)
        layer.lin_l.bias.zero_()
        layer.lin_r.weight.fill_(1.0)
    return model


def expected(model: GNN, oracle: Oracle) -> dict[Any, tuple[int, float]]:
    """The class of every vertex and its probability, from scratch."""
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
def test_what_comes_out_is_what_a_plain_model_says(data: st.DataObject) -> None:
    schema = GraphSchema(features={"x": 3}, edges=data.draw(st.sampled_from(["simple", "multi"])))
    alerts = data.draw(st.sampled_from(ALERTS), "alerts")
    model = classifier()
    engine = LocalEngine(model, data.draw(st.integers(1, 3), "parts"), schema=schema, alerts=alerts)
    oracle = Oracle(schema)
    table: dict[Any, int] = {}  # the class that was last said of a vertex, and is worth it
    heard: set[Any] = set()  # vertices that anything was said of
    for batch in data.draw(event_batches(schema, "int"), "batches"):
        oracle.apply(batch)
        out = {update.id: update for update in engine.apply(batch)}
        now = expected(model, oracle)
        for id, update in out.items():
            if update.deleted:
                assert id not in now
                assert id in heard
                heard.remove(id)
                table.pop(id, None)
                continue
            assert update.prediction == now[id][0]
            assert update.score == pytest.approx(now[id][1], abs=1e-5)
            if alerts is not None:
                assert worth(alerts, *now[id])
                anew = any((e.op, e.element, e.src) == ("delete", "vertex", id) for e in batch)
                assert anew or not (alerts.changed_class and table.get(id) == now[id][0])
            table[id] = now[id][0]
            heard.add(id)
        assert heard <= now.keys(), "a vertex is gone, and nobody was told"
        for id, (prediction, score) in now.items():
            if alerts is None or worth(alerts, prediction, score, margin=1e-5):
                assert table.get(id) == prediction, "something worth saying was not said"
            if alerts is not None and not worth(alerts, prediction, score, margin=-1e-5):
                table.pop(id, None)  # it may be said anew


def worth(alerts: Alerts, prediction: int, score: float, margin: float = 0.0) -> bool:
    if alerts.threshold is not None and score < alerts.threshold + margin:
        return False
    return alerts.classes is None or prediction in alerts.classes


def test_a_vertex_is_said_again_when_its_class_comes_back() -> None:
    model = GNN([SAGE(1, 2, root_weight=True)], Classifier())
    with torch.no_grad():
        layer = model.layers[0]
        assert isinstance(layer, SAGE)
        layer.lin_l.weight.zero_()
        layer.lin_l.bias.zero_()
        layer.lin_r.weight.copy_(torch.tensor([[0.0], [1.0]]))  # class 1 for x above 0
    engine = LocalEngine(model, schema=GraphSchema(features={"x": 1}), alerts=Alerts(0.9, [1], True))
    said = [
        [update.id for update in engine.apply([feature("a", [x], time=i)])]
        for i, x in enumerate([-5.0, 5.0, 6.0, 0.0, 7.0, 8.0])
    ]
    assert said == [[], ["a"], [], [], ["a"], []]
    engine.apply([feature("a", [-5.0], time=9)])
    assert [update.deleted for update in engine.apply([delete_vertex("a", time=9)])] == [True], "it was said"
    engine.apply([feature("b", [-1.0], time=10)])
    assert not len(engine.apply([delete_vertex("b", time=11)])), "nobody has heard of it"


@pytest.mark.parametrize("how", ["refreshed", "loaded"])
def test_what_was_said_before_everything_was_made_anew_has_its_tombstones(how: str, tmp_path: Path) -> None:
    engine = LocalEngine(the_feature_itself(), schema=GraphSchema(features={"x": 1}), alerts=Alerts(5.0))
    assert len(engine.apply([feature("a", [10.0], time=1), feature("b", [9.0], time=1)])) == 2
    assert not len(engine.apply([feature("a", [0.0], time=2)])), "no longer worth it"
    if how == "refreshed":
        assert [update.id for update in engine.refresh()] == ["b"]
    else:
        engine.save(tmp_path)
        engine = LocalEngine.load(tmp_path)
    engine.apply([feature("c", [0.0], time=3)])
    gone = engine.apply([delete_vertex(id, time=4) for id in "abc"])
    assert sorted((update.id, update.deleted) for update in gone) == [("a", True), ("b", True)]


def test_with_windows_a_drain_says_what_is_due() -> None:
    model, schema = classifier(), GraphSchema(features={"x": 3})
    engine = LocalEngine(model, 2, schema=schema, window=Tumbling(1.0), alerts=Alerts(changed_class=True))
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


def test_an_engine_keeps_its_head_and_alerts(tmp_path: Path) -> None:
    engine = LocalEngine(classifier(), alerts=Alerts(0.5, [1, 2], True))
    updates = engine.apply([edge(1, 2, time=1)])
    engine.save(tmp_path)
    loaded = LocalEngine.load(tmp_path)
    assert loaded.alerts == engine.alerts
    assert repr(loaded.model) == "GNN(3 -> SAGE(mean) 4 -> SAGE(mean) 4 -> Classifier)"
    again = LocalEngine(loaded.model, alerts=loaded.alerts).apply([edge(1, 2, time=1)])
    assert [(u.id, u.prediction, u.score) for u in again] == [(u.id, u.prediction, u.score) for u in updates]


def test_a_regressor_says_a_number() -> None:
    torch.manual_seed(2)
    model = GNN([SAGE(3, 4)], Regressor(nn.Linear(4, 1)))
    everything = LocalEngine(model).apply([edge(i, i + 1, time=1) for i in range(20)])
    assert everything.prediction is not None
    middle = float(np.median(everything.prediction))
    some = LocalEngine(model, alerts=Alerts(threshold=middle)).apply(
        [edge(i, i + 1, time=1) for i in range(20)]
    )
    assert {u.id for u in some} == {u.id for u in everything if u.score is not None and u.score >= middle}


@pytest.mark.parametrize("number", [0.5, -0.5, -1.5, -3.0, 3e9])
def test_whatever_number_was_said_a_tombstone_follows(number: float) -> None:
    engine = LocalEngine(the_feature_itself(), schema=GraphSchema(features={"x": 1}), alerts=Alerts(-10.0))
    assert [update.prediction for update in engine.apply([feature("a", [number], time=1)])] == [number]
    assert [update.deleted for update in engine.apply([delete_vertex("a", time=2)])] == [True]


def test_settings_of_alerts_are_plain_numbers(tmp_path: Path) -> None:
    alerts = Alerts(np.float32(0.5), np.array([1, 2]))  # type: ignore[arg-type]
    assert alerts == Alerts(0.5, torch.tensor([1, 2]))  # type: ignore[arg-type]
    LocalEngine(classifier(), alerts=alerts).save(tmp_path)
    assert LocalEngine.load(tmp_path).alerts == Alerts(0.5, [1, 2])
    with pytest.raises(TypeError):
        Alerts(classes=[1.5])  # type: ignore[list-item]


def test_what_is_wrong_is_said() -> None:
    plain = GNN([SAGE(3, 4)])
    with pytest.raises(ValueError, match="alerts need a head"):
        LocalEngine(plain, alerts=Alerts(0.5))
    with pytest.raises(ValueError, match="are for a Classifier"):
        LocalEngine(GNN([SAGE(3, 4)], Regressor()), alerts=Alerts(changed_class=True))
    with pytest.raises(ValueError, match="at least one class"):
        Alerts(classes=[])
    with pytest.raises(ValueError, match="a number, please"):
        Alerts(threshold=float("nan"))
    with pytest.raises(TypeError, match="LSTM cannot be taken"):
        Classifier(nn.LSTM(2, 2))
