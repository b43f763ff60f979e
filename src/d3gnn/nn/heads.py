"""Heads: predictions for vertices, and scores for pairs of vertices, from their embeddings."""

from __future__ import annotations

from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from d3gnn.nn.arguments import arguments_of, from_arguments
from d3gnn.nn.modules import describe
from d3gnn.registry import register

_TYPES: dict[str, type[BaseHead]] = {}


class BaseHead(nn.Module):
    """What all heads have: a name, and a network `net` that is applied to embeddings.

    A custom head keeps the arguments of its constructor as attributes of the same names, for saving.
    """

    type_name: ClassVar[str]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.type_name = cls.__name__
        register(_TYPES, cls.type_name, cls, "head")

    def __init__(self, net: nn.Module | None = None) -> None:
        super().__init__()
        self.net = nn.Identity() if net is None else net
        describe(self.net)  # refuses modules that cannot be saved

    def config(self) -> dict[str, Any]:
        """How to build the head, without its weights, as plain values."""
        return {"type": self.type_name, **arguments_of(self)}


class Head(BaseHead):
    """Predicts something for each vertex: a prediction, and a score that goes with it."""

    def predict(self, embedding: Tensor) -> Tensor:
        """Prediction and score of each row: [n, width] -> [n, 2]."""
        raise NotImplementedError


class Classifier(Head):
    """The class with the largest logit, counted from 0, and its probability by softmax.

    `net` maps an embedding to logits; without one, the embedding is the logits.

    >>> Classifier().predict(torch.tensor([[0.0, 2.0, 1.0]])).tolist()
    [[1.0, 0.66...]]
    """

    def predict(self, embedding: Tensor) -> Tensor:
        score, best = torch.softmax(self.net(embedding), 1).max(1)
        return torch.stack([best.float(), score], 1)


class Regressor(Head):
    """A number: the first that `net` returns for an embedding. It is its own score.

    >>> Regressor().predict(torch.tensor([[0.5, 2.0]])).tolist()
    [[0.5, 0.5]]
    """

    def predict(self, embedding: Tensor) -> Tensor:
        first = cast(Tensor, self.net(embedding))[:, :1]
        return torch.cat([first, first], 1)


class PairHead(BaseHead):
    """Scores pairs of vertices: those that queries ask for and, with `edges`, the two ends of every edge,
    whenever that score changes.
    """

    def __init__(self, net: nn.Module | None = None, *, edges: bool = False) -> None:
        super().__init__(net)
        self.edges = edges

    def score(self, src: Tensor, dst: Tensor) -> Tensor:
        """The score of each pair of rows: [n, width], [n, width] -> [n]."""
        raise NotImplementedError

    def logit(self, src: Tensor, dst: Tensor) -> Tensor:
        """What training for links compares: the larger, the likelier an edge is. The score, by default."""
        return self.score(src, dst)


#: How a `LinkPredictor` combines two embeddings.
COMBINE = ("product", "cat")


class LinkPredictor(PairHead):
    """The probability of an edge from one vertex to another.

    `net` returns a logit, the first of its numbers. Its input is the elementwise `product` of two embeddings,
    or the two concatenated (`combine="cat"`). Without a net, the logit is their dot product.

    >>> LinkPredictor().score(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, -1.0]])).tolist()
    [0.73...]
    """

    def __init__(
        self, net: nn.Module | None = None, *, combine: str = "product", edges: bool = False
    ) -> None:
        if combine not in COMBINE:
            raise ValueError(f"combine={combine!r}: choose one of {', '.join(COMBINE)}")
        if combine == "cat" and net is None:
            raise ValueError("combine='cat' needs a net, which maps two concatenated embeddings to a logit")
        super().__init__(net, edges=edges)
        self.combine = combine

    def score(self, src: Tensor, dst: Tensor) -> Tensor:
        return torch.sigmoid(self.logit(src, dst))

    def logit(self, src: Tensor, dst: Tensor) -> Tensor:
        if isinstance(self.net, nn.Identity):
            return (src * dst).sum(1)
        combined = src * dst if self.combine == "product" else torch.cat([src, dst], 1)
        return cast(Tensor, self.net(combined))[:, 0]


#: Measures of similarity.
MEASURES = ("cosine", "dot")


class Similarity(PairHead):
    """The similarity of two vertices: the `cosine` of the angle between their embeddings, or the `dot`
    product. `net`, if there is one, is applied to each embedding first. The cosine with a zero vector is 0.

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


def make_head(config: dict[str, Any]) -> Head | PairHead:
    """The head that `config` described, with new weights."""
    arguments = dict(config)
    name = arguments.pop("type")
    if name not in _TYPES:
        known = ", ".join(sorted(_TYPES))
        raise ValueError(f"unknown head {name!r}: import the module that defines it; known are {known}")
    return cast("Head | PairHead", _TYPES[name](**from_arguments(arguments)))
