"""Prequential scores: a label scores the prediction that was current when it arrived, or at its own time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from d3gnn import GraphSchema, LocalEngine, Training, events
from d3gnn.nn import GNN, Classifier, GraphSAGE, LinkPredictor, Regressor, SAGEConv
from d3gnn.training import AfterLabels, Every, OnDrift, Scoring
from d3gnn.training.metrics import ClassScores, NumberScores

SCHEMA = GraphSchema(features={"x": 2}, missing="hash")


def model(head: Classifier | Regressor | None = None) -> GNN:
    return GraphSAGE(2, 4, 2, 3, seed=3, head=head or Classifier())


def predicted(engine: LocalEngine, id: int) -> int:
    return int(engine.embeddings([id])[0].argmax())


@pytest.mark.parametrize("parts", [1, 3])
def test_a_label_scores_the_prediction_before_its_batch(parts: int) -> None:
    engine = LocalEngine(model(), schema=SCHEMA, parts=parts, scoring=Scoring(window=5))
    engine.apply([events.edge(i, (i + 1) % 8, time=1) for i in range(8)])
    right = wrong = 0
    for i in range(8):
        before = predicted(engine, i)
        label = before if i % 3 else (before + 1) % 3
        right, wrong = right + (label == before), wrong + (label != before)
        engine.apply([
            events.label(i, label, time=2 + i), events.feature(i, [9.0 * i, -5.0], time=2 + i),
        ])  # fmt: skip
    scores = engine.scores()
    assert scores["total"]["scored"] == 8
    assert scores["total"]["accuracy"] == right / 8
    assert scores["recent"]["accuracy"] == 3 / 5  # i = 3..7, of which 3 and 6 are wrong
    assert wrong == 3


def test_labels_without_a_prediction_are_not_scored() -> None:
    engine = LocalEngine(model(), schema=SCHEMA, scoring=Scoring())
    engine.apply([events.label(1, 0, time=1)])
    engine.apply([events.edge(1, 2, time=2), events.label(2, 0, time=2)])
    assert engine.scores()["total"]["scored"] == 0
    assert engine.scores()["total"]["unscored"] == 2
    engine.apply([events.label(1, 1, time=3), events.label(2, 7, time=3)])  # there is no class 7
    engine.apply([events.delete_label(1, time=4)])
    assert engine.scores()["total"]["scored"] == 1
    engine.refresh()
    assert engine.scores()["total"]["scored"] == 1, "a refresh replays labels"


def test_a_late_label_scores_the_prediction_at_its_time() -> None:
    turning = GNN([SAGEConv(2, 3)], Classifier())  # another class for each direction of the features
    with torch.no_grad():
        turning.get_parameter("_layers.0.lin_r.weight").copy_(torch.tensor([[1.0, 0], [-1, 1], [-1, -1]]))
    engine = LocalEngine(turning, schema=SCHEMA, parts=2, scoring=Scoring(late=20))
    then: dict[int, int] = {}
    for time in range(10, 60, 10):
        value = [float(np.sin(time) * 9), float(np.cos(time) * 9)]
        engine.apply([events.feature(1, value, time=time), events.edge(2, 3, time=time)])
        then[time] = predicted(engine, 1)
    assert len(set(then.values())) > 1, "the predictions differ"
    # Newest time 50: labels from 30 on are scored; a label needs a later time than the one before it.
    for time in (29, 35, 45, 50):
        engine.apply([events.label(1, then[time // 10 * 10], time=time)])
    scores = engine.scores()["total"]
    assert (scores["scored"], scores["unscored"], scores["accuracy"]) == (3, 1, 1.0)
    engine.train(Training(epochs=1, holdout=0.0))
    engine.apply([events.label(2, 0, time=51)])
    assert engine.scores()["total"]["scored"] == 4


def f1(true: Any, found: Any) -> float:
    """From precision and recall, as it is defined."""
    hits = float((true & found).sum())
    precision, recall = hits / max(1, found.sum()), hits / max(1, true.sum())
    return float(2 * precision * recall / max(1e-30, precision + recall))


def area(true: Any, score: Any) -> float:
    """From all pairs, as it is defined."""
    difference = score[true][:, None] - score[~true][None, :]
    return float((difference > 0).mean() + 0.5 * (difference == 0).mean())


def test_metrics_are_as_they_are_defined() -> None:
    random = np.random.default_rng(1)
    for classes in (2, 3):
        scores = ClassScores(classes, window=50)
        probability = random.dirichlet(np.ones(classes), 120)
        true = random.integers(0, classes, 120)
        for begin in range(0, 120, 17):
            scores.add(probability[begin : begin + 17], true[begin : begin + 17])
        for got, some in ((scores.total(), slice(0, 120)), (scores.recent(), slice(70, 120))):
            p, t = probability[some], true[some]
            assert got["accuracy"] == pytest.approx(float((t == p.argmax(1)).mean()))
            assert got["macro_f1"] == pytest.approx(
                np.mean([f1(t == c, p.argmax(1) == c) for c in range(classes)])
            )
            loss = torch.nn.functional.nll_loss(torch.from_numpy(p).log(), torch.from_numpy(t))
            assert got["log_loss"] == pytest.approx(loss.item())
            areas = [area(t == c, p[:, c]) for c in range(1 if classes == 2 else 0, classes)]
            assert got["auc"] == pytest.approx(np.mean(areas), abs=1e-3)
    numbers = NumberScores(window=3)
    numbers.add(np.array([1.0, 2.0]), np.array([1.0, 4.0]))
    numbers.add(np.array([0.0, 0.0]), np.array([3.0, 0.0]))
    assert numbers.total() == {"mae": 5 / 4, "rmse": pytest.approx((13 / 4) ** 0.5)}
    assert numbers.recent()["mae"] == pytest.approx(5 / 3)


def test_a_regressor_is_scored_by_its_errors() -> None:
    engine = LocalEngine(model(Regressor(torch.nn.Linear(3, 1))), schema=SCHEMA, scoring=Scoring())
    engine.apply([events.edge(1, 2, time=1)])
    assert engine.scores()["total"]["mae"] is None
    engine.apply([events.label(1, 3.0, time=2)])
    assert engine.scores()["total"]["mae"] is not None


def test_triggers_say_when_a_training_is_due() -> None:
    for trigger in (AfterLabels(4), Every(3), OnDrift(lambda: Never(), at_least=1) | AfterLabels(4)):
        engine = LocalEngine(model(), schema=SCHEMA, scoring=Scoring(trigger=trigger))
        engine.apply([events.edge(i, (i + 1) % 8, time=1) for i in range(8)])
        due = []
        for i in range(4):
            engine.apply([events.label(i, i % 3, time=1 + i)])
            due.append(engine.training_due() is not None)
        assert due == [False, False, False, True]
        engine.train(Training(epochs=1, holdout=0.0))
        assert engine.training_due() is None


class Never:
    def update(self, value: float) -> bool:
        return False


@pytest.mark.parametrize("detector", ["adwin", "page-hinkley", "ddm"])
def test_detectors_of_river_find_a_drift(detector: str) -> None:
    watch = OnDrift(detector, at_least=5).start()
    assert watch.see([0.0] * 400, 400, 0) is None
    assert watch.see([1.0] * 200, 200, 1) is not None


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="detector"):
        OnDrift("cusum")
    with pytest.raises(ValueError, match="pairs"):
        LocalEngine(GraphSAGE(2, 4, 2, head=LinkPredictor()), scoring=Scoring())
    with pytest.raises(ValueError, match="other layers"):
        LocalEngine(model(), schema=SCHEMA).use(GraphSAGE(2, 5, 2, 3))
