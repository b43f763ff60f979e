"""Heads: what is said of a vertex, from its embedding."""

from __future__ import annotations

from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from d3gnn.nn.modules import build, describe

_KINDS: dict[str, type[Head]] = {}


class Head(nn.Module):
    """Says something of each vertex: a prediction, and a score that goes with it."""

    kind: ClassVar[str]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.kind = cls.__name__
        _KINDS[cls.kind] = cls

    def __init__(self, net: nn.Module | None = None) -> None:
        super().__init__()
        self.net = nn.Identity() if net is None else net
        describe(self.net)  # says what cannot be taken

    def predict(self, embedding: Tensor) -> Tensor:
        """Prediction and score of each row: [n, width] -> [n, 2]."""
        raise NotImplementedError

    def config(self) -> dict[str, Any]:
        """What makes this head again, weights aside."""
        return {"kind": self.kind, "net": describe(self.net)}


class Classifier(Head):
    """The class with the largest logit, from 0 on, and its probability by softmax.

    `net` makes logits of an embedding; without one the embedding is the logits.

    >>> Classifier().predict(torch.tensor([[0.0, 2.0, 1.0]])).tolist()
    [[1.0, 0.66...]]
    """

    def predict(self, embedding: Tensor) -> Tensor:
        score, best = torch.softmax(self.net(embedding), 1).max(1)
        return torch.stack([best.float(), score], 1)


class Regressor(Head):
    """A number: the first that `net` makes of an embedding. It is its own score.

    >>> Regressor().predict(torch.tensor([[0.5, 2.0]])).tolist()
    [[0.5, 0.5]]
    """

    def predict(self, embedding: Tensor) -> Tensor:
        first = cast(Tensor, self.net(embedding))[:, :1]
        return torch.cat([first, first], 1)


def make_head(config: dict[str, Any]) -> Head:
    """The head that `config` tells of, with new weights."""
    if config["kind"] not in _KINDS:
        raise ValueError(f"no head {config['kind']!r} is known; known are {', '.join(sorted(_KINDS))}")
    return _KINDS[config["kind"]](build(config["net"]))
