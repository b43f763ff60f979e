"""Fraud accounts whose behaviour changes: a model that notices, and trains itself again on the live graph.

    python examples/drift.py

Accounts send money, and some days later it is known which of them were fraudulent. Halfway through, the
fraudsters change their behaviour: from many small transfers at night to few large ones at noon. Each label
scores the prediction that was current when it arrived. When the errors drift, the engine is trained on the
newest labels, on the graph that it already holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from d3gnn import GraphSchema, LocalEngine, Training, events
from d3gnn.events import Event
from d3gnn.nn import Classifier, GraphSAGE
from d3gnn.training import OnDrift, Scoring

DAYS, ACCOUNTS_A_DAY, CHANGE = 30, 25, 15
SCHEMA = GraphSchema(features={"size": 1, "hour": 1}, directed=False)


class SuddenErrors:
    """A detector of our own: more than a third of the last 30 predictions were wrong."""

    def __init__(self) -> None:
        self.recent: list[float] = []

    def update(self, value: float) -> bool:
        self.recent = [*self.recent[-29:], value]
        return len(self.recent) == 30 and sum(self.recent) > 10


def stream() -> Iterator[tuple[list[Event], list[Event]]]:
    """For each day: new accounts with their transfers, and the labels of these accounts."""
    random = np.random.default_rng(0)
    kinds: list[int] = []  # 0: honest, 1: fraud
    for day in range(DAYS):
        new = range(len(kinds), len(kinds) + ACCOUNTS_A_DAY)
        arriving, labels = [], []
        for account in new:
            kinds.append(int(random.random() < 0.4))
            small_at_night = (kinds[-1] == 1) == (day < CHANGE)
            size, hour = (-1.0, -1.0) if small_at_night else (1.0, 1.0)
            noise = 1.2 * random.standard_normal(2)
            arriving.append(events.feature(account, [size + noise[0]], name="size", time=day))
            arriving.append(events.feature(account, [hour + noise[1]], name="hour", time=day))
            alike = [other for other in range(max(0, account - 60), account) if kinds[other] == kinds[-1]]
            chosen = random.choice(alike, min(3, len(alike)), replace=False) if alike else []
            arriving += [events.edge(account, int(other), time=day) for other in chosen]
            labels.append(events.label(account, kinds[-1], time=day))
        yield arriving, labels


def run(*, trains_again: bool) -> float:
    """Process the stream; returns the accuracy of the last 200 predictions."""
    model = GraphSAGE(2, hidden_channels=16, num_layers=2, out_channels=2, seed=0, head=Classifier())
    scoring = Scoring(window=200, trigger=OnDrift(SuddenErrors, at_least=30))
    engine = LocalEngine(model, schema=SCHEMA, scoring=scoring)
    for day, (arriving, labels) in enumerate(stream()):
        engine.apply(arriving)
        engine.apply(labels)
        reason = "first labels" if day == 3 else engine.training_due() if day > 3 and trains_again else None
        if reason:
            result = engine.train(Training(epochs=60, newest=100, holdout=0.0))
            print(f"day {day}: trained on {result.trained.trained_on} labels ({reason})")
    return float(engine.scores()["recent"]["accuracy"] or 0.0)


def main(folder: Path | None = None) -> None:
    torch.set_num_threads(1)  # the graph is small
    for trains_again in (False, True):
        accuracy = run(trains_again=trains_again)
        print(f"{'trained on drift' if trains_again else 'trained once'}: accuracy {accuracy:.2f}\n")


if __name__ == "__main__":
    main()
