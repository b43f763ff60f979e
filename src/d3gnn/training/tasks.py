"""What a training makes smaller: the loss of each label, and the score that people read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import cast

import torch
from torch import Tensor, nn

from d3gnn.nn.heads import BaseHead, Classifier, PairHead, Regressor
from d3gnn.nn.model import GNN
from d3gnn.training.ranks import Ranks
from d3gnn.training.settings import LossFunction, Training


class Task(ABC):
    """Losses and scores of labelled vertices. `sums` are added over ranks before `score` reads them."""

    #: Numbers in `sums`.
    width: int

    @abstractmethod
    def losses(self, predicted: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of each label, and its weight: [n, k], [n, m] -> [n], [n]."""

    @abstractmethod
    def sums(self, predicted: Tensor, target: Tensor) -> Tensor:
        """What the score is made of: [width]."""

    @abstractmethod
    def score(self, sums: Tensor) -> float:
        """The larger, the better."""


class Classification(Task):
    """Cross-entropy, and accuracy."""

    width = 2

    def __init__(self, weights: Tensor | None) -> None:
        self._weights = weights

    def losses(self, predicted: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        wanted = target[:, 0].long()
        losses = nn.functional.cross_entropy(predicted, wanted, reduction="none")
        return losses, torch.ones_like(losses) if self._weights is None else self._weights[wanted]

    def sums(self, predicted: Tensor, target: Tensor) -> Tensor:
        right = (predicted.argmax(1) == target[:, 0].long()).sum()
        return torch.stack([right, torch.tensor(len(target))]).double()

    def score(self, sums: Tensor) -> float:
        return float(sums[0] / sums[1].clamp(min=1))


class Regression(Task):
    """Mean squared error, and the share of the variance that is explained (R2)."""

    width = 4

    def losses(self, predicted: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        losses = ((predicted[:, : target.shape[1]] - target) ** 2).mean(1)
        return losses, torch.ones_like(losses)

    def sums(self, predicted: Tensor, target: Tensor) -> Tensor:
        error = (predicted[:, : target.shape[1]] - target).double()
        wide = target.double()
        values = (error**2).sum(), wide.sum(), (wide**2).sum(), torch.tensor(float(wide.numel()))
        return torch.stack([value.double() for value in values])

    def score(self, sums: Tensor) -> float:
        error, total, squares, count = sums.tolist()
        variance = squares - total * total / max(1.0, count)
        return float(1.0 - error / variance if variance > 0 else -error)


class Custom(Task):
    """The user's own loss; its score is the mean loss, times -1."""

    width = 2

    def __init__(self, function: LossFunction) -> None:
        self._function = function

    def losses(self, predicted: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        losses = self._of_each(predicted, target)
        return losses, torch.ones_like(losses)

    def _of_each(self, predicted: Tensor, target: Tensor) -> Tensor:
        losses = self._function(predicted, target)
        if losses.shape != (len(target),):
            raise ValueError(
                f"loss= returned a tensor of shape {tuple(losses.shape)} for {len(target)} labels: it must "
                "return one number for each, as with reduction='none'"
            )
        return losses

    def sums(self, predicted: Tensor, target: Tensor) -> Tensor:
        losses = self._of_each(predicted, target)
        return torch.stack([losses.sum(), torch.tensor(float(len(losses)))]).double()

    def score(self, sums: Tensor) -> float:
        return -float(sums[0] / sums[1].clamp(min=1))


def loss_name(model: GNN, settings: Training) -> str:
    """Which loss a training uses; `custom` for a function."""
    if settings.loss is not None:
        return settings.loss if isinstance(settings.loss, str) else "custom"
    if isinstance(model.head, PairHead):
        return "link"
    return "regression" if isinstance(model.head, Regressor) else "classification"


def task_of(model: GNN, settings: Training, targets: Tensor, ranks: Ranks) -> Task:
    """The task of a training; `targets` are this rank's, from which `balanced` weights follow."""
    name = loss_name(model, settings)
    if callable(settings.loss):
        return Custom(settings.loss)
    if name == "regression":
        return Regression()
    classes = _classes(model)
    wanted = targets[:, 0].long()
    wrong = (targets[:, 0] != wanted) | (wanted < 0) | (wanted >= classes)
    if ranks.add_up(wrong.sum()) > 0:
        example = f", such as {float(targets[wrong, 0][0]):g}" if wrong.any() else ""
        raise ValueError(
            f"the model predicts {classes} classes, but labels are not all class numbers from 0 to "
            f"{classes - 1}{example}: widen the model's output, or use loss='regression'"
        )
    return Classification(_class_weights(settings, wanted, classes, ranks))


def _classes(model: GNN) -> int:
    with torch.no_grad():
        return predictions(model, torch.zeros(1, model.out_channels)).shape[1]


def _class_weights(settings: Training, wanted: Tensor, classes: int, ranks: Ranks) -> Tensor | None:
    weights = settings.class_weights
    if weights is None:
        return None
    if weights == "balanced":
        counts = ranks.add_up(torch.bincount(wanted, minlength=classes).double())
        present = int((counts > 0).sum())
        return (counts.sum() / (max(1, present) * counts.clamp(min=1))).float()
    if len(weights) != classes:
        raise ValueError(
            f"class_weights has {len(weights)} numbers, but the model predicts {classes} classes"
        )
    return torch.tensor(weights)


def predictions(model: GNN, embedding: Tensor) -> Tensor:
    """Logits or numbers: what the head's network makes of embeddings, or the embeddings themselves."""
    head = model.head
    if isinstance(head, Classifier | Regressor) or (
        isinstance(head, BaseHead) and not isinstance(head, PairHead)
    ):
        return cast(Tensor, head.net(embedding))
    return embedding
