"""Training for links."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from d3gnn import GraphSchema, LocalEngine, Training, events
from d3gnn.nn import Classifier, GraphSAGE, LinkPredictor, PairHead, Similarity

ADAM = partial(torch.optim.Adam, eps=1e-3)


def engine_of(head: PairHead | Classifier, parts: int = 1) -> LocalEngine:
    """Two groups of vertices, with edges inside each."""
    torch.manual_seed(1)
    model = GraphSAGE(2, 8, 2, 4, seed=2, head=head)
    engine = LocalEngine(model, parts=parts, schema=GraphSchema(features={"x": 2}))
    random = np.random.default_rng(3)
    engine.apply(
        [events.feature(i, [i % 2 - 0.5, 0.3 * random.standard_normal()], time=1) for i in range(40)]
    )
    pairs = random.integers(0, 20, (120, 2)) * 2
    engine.apply([events.edge(int(u) + i % 2, int(v) + i % 2, time=2) for i, (u, v) in enumerate(pairs)])
    return engine


def cat() -> LinkPredictor:
    return LinkPredictor(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)), combine="cat")


@pytest.mark.parametrize("make", [LinkPredictor, cat, lambda: Similarity(measure="dot")])
def test_edges_come_to_score_above_other_pairs(make: Any) -> None:
    engine = engine_of(make())
    result = engine.train(Training(epochs=60, lr=0.02, negatives=3, holdout=0.2))
    assert result.used
    assert result.trained.after > max(0.6, result.trained.before)
    assert result.trained.epochs[-1].loss < result.trained.epochs[0].loss


@pytest.mark.parametrize("batch_size", [None, 30])
def test_weights_do_not_depend_on_parts(batch_size: int | None) -> None:
    found = []
    for parts in (1, 2, 4):
        engine = engine_of(LinkPredictor(), parts)
        engine.train(Training(epochs=4, negatives=2, batch_size=batch_size, optimizer=ADAM, keep_worse=True))
        found.append(torch.cat([weight.detach().reshape(-1) for weight in engine.trainable.parameters()]))
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found[2], found[0], rtol=1e-4, atol=1e-5)


def test_heads_and_losses_must_fit() -> None:
    with pytest.raises(ValueError, match="needs a head for pairs"):
        engine_of(Classifier()).train(Training(loss="link"))
    with pytest.raises(ValueError, match="loss='link'"):
        engine_of(LinkPredictor()).train(Training(loss="regression"))
