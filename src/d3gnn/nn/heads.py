"""Heads: what is said of a vertex, from its embedding, or of two, from theirs."""

from __future__ import annotations

from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from d3gnn.nn.modules import build, describe

_KINDS: dict[str, type[AnyHead]] = {}


class AnyHead(nn.Module):
    """What all heads have: a name, and a network `net` that reads embeddings; without one they stay."""

    kind: ClassVar[str]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.kind = cls.__name__
        _KINDS[cls.kind] = cls

    def __init__(self, net: nn.Module | None = None) -> None:
        super().__init__()
        self.net = nn.Identity() if net is None else net
        describe(self.net)  # says what cannot be taken

    def settings(self) -> dict[str, Any]:
        """What makes this head again, beside its network."""
        return {}

    def config(self) -> dict[str, Any]:
        """What makes this head again, weights aside."""
        return {"kind": self.kind, "net": describe(self.net), **self.settings()}


class Head(AnyHead):
    """Says something of each vertex: a prediction, and a score that goes with it."""

    def predict(self, embedding: Tensor) -> Tensor:
        """Prediction and score of each row: [n, width] -> [n, 2]."""
        raise NotImplementedError


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


class PairHead(AnyHead):
    """Gives pairs of vertices a score: those that queries ask for and, with `edges`, those that edges join,
    as often as it changes.
    """

    def __init__(self, net: nn.Module | None = None, *, edges: bool = False) -> None:
        super().__init__(net)
        self.edges = edges

    def score(self, src: Tensor, dst: Tensor) -> Tensor:
        """The score of each pair of rows: [n, width], [n, width] -> [n]."""
        raise NotImplementedError

    def settings(self) -> dict[str, Any]:
        return {"edges": self.edges}


#: How two embeddings become what the network of a `LinkPredictor` reads.
JOINS = ("product", "cat")


class LinkPredictor(PairHead):
    """How likely there is an edge from one vertex to the other, from 0 to 1.

    `net` makes a logit, the first of its numbers, of the `product` of two embeddings, number by number, or of
    the two side by side (`cat`). Without a net, the logit is their dot product.

    >>> LinkPredictor().score(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, -1.0]])).tolist()
    [0.73...]
    """

    def __init__(self, net: nn.Module | None = None, *, joins: str = "product", edges: bool = False) -> None:
        if joins not in JOINS:
            raise ValueError(f"joins={joins!r}: choose one of {', '.join(JOINS)}")
        if joins == "cat" and net is None:
            raise ValueError("joins='cat': a net is needed that makes a logit of two embeddings")
        super().__init__(net, edges=edges)
        self.joins = joins

    def score(self, src: Tensor, dst: Tensor) -> Tensor:
        if isinstance(self.net, nn.Identity):
            return torch.sigmoid((src * dst).sum(1))
        joined = src * dst if self.joins == "product" else torch.cat([src, dst], 1)
        return torch.sigmoid(cast(Tensor, self.net(joined))[:, 0])

    def settings(self) -> dict[str, Any]:
        return super().settings() | {"joins": self.joins}


#: How alike two embeddings are.
MEASURES = ("cosine", "dot")


class Similarity(PairHead):
    """How alike two vertices are: the `cosine` of the angle between what `net` makes of their embeddings, or
    the `dot` product. The cosine with a vector of zeros is 0.

    >>> Similarity().score(torch.tensor([[1.0, 0.0]]), torch.tensor([[2.0, 2.0]])).tolist()
    [0.70...]
    """

    def __init__(self, net: nn.Module | None = None, *, measure: str = "cosine", edges: bool = False) -> None:
        if measure not in MEASURES:
            raise ValueError(f"measure={measure!r}: choose one of {', '.join(MEASURES)}")
        super().__init__(net, edges=edges)
        self.measure = measure

    def score(self, src: Tensor, dst: Tensor) -> Tensor:
        one, other = self.net(src), self.net(dst)
        if self.measure == "cosine":
            return nn.functional.cosine_similarity(one, other)
        return cast(Tensor, (one * other).sum(1))

    def settings(self) -> dict[str, Any]:
        return super().settings() | {"measure": self.measure}


def make_head(config: dict[str, Any]) -> Head | PairHead:
    """The head that `config` tells of, with new weights."""
    settings = dict(config)
    kind, net = settings.pop("kind"), settings.pop("net")
    if kind not in _KINDS:
        raise ValueError(f"no head {kind!r} is known; known are {', '.join(sorted(_KINDS))}")
    return cast("Head | PairHead", _KINDS[kind](build(net), **settings))
