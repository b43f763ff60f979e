"""How a model is trained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import torch
from torch import Tensor

from d3gnn.whole_numbers import check_whole

#: From predictions [n, k] and targets [n, m] to one number per row.
LossFunction: TypeAlias = Callable[[Tensor, Tensor], Tensor]
LossName = Literal["classification", "regression", "link"]


@dataclass(frozen=True)
class Training:
    """Settings of a training, checked when made.

    loss:
        `classification` (cross-entropy; the label's first number is the class), `regression` (mean squared
        error), `link` (edges of the graph against sampled pairs), or a function of predictions and targets
        that returns one number per label. Default: what the model's head is for, and `classification`
        without a head.
    epochs, batch_size:
        Passes over the labels, and labels in a step; all of them unless given. Every step computes the whole
        graph.
    optimizer:
        Makes the optimiser from parameters, `lr` and `weight_decay`: one of `torch.optim`, or a function.
    schedule:
        Makes a scheduler of `torch.optim.lr_scheduler` from the optimiser; it steps after every epoch.
    clip:
        Largest norm of the gradient.
    dropout:
        Share of the numbers in the input of every layer but the first that are set to 0, as in PyG's models.
    class_weights:
        A weight for each class, or `balanced`: each class counts the same in sum.
    negatives:
        Sampled pairs for each edge, for `link`.
    test:
        Which labels are for testing only: a share of them, chosen by `seed` and id.
    test_column:
        Instead, the place of the label's number that is not 0 for a test label.
    newest:
        Train on this many of the newest labels, by event time: where the concept drifts, old labels mislead.
    holdout:
        Share of the other labels that is held out: the score on them decides about early stopping and whether
        the new model is better than the old one.
    patience:
        Stop after this many epochs without a better score on the held-out labels, and take the weights that
        scored best.
    keep_worse:
        Use the new model even if it scores worse than the old one on the held-out labels.
    seed:
        Of all random choices. They do not depend on the number of parts.

    >>> Training(epochs=20, lr=0.005, patience=5)
    Training(epochs=20, lr=0.005, patience=5)
    """

    loss: LossName | LossFunction | None = None
    epochs: int = 50
    batch_size: int | None = None
    lr: float = 0.01
    weight_decay: float = 0.0
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.Adam
    schedule: Callable[[torch.optim.Optimizer], Any] | None = None
    clip: float | None = None
    dropout: float = 0.0
    class_weights: Sequence[float] | Literal["balanced"] | None = None
    negatives: int = 1
    test: float = 0.0
    test_column: int | None = None
    newest: int | None = None
    holdout: float = 0.1
    patience: int | None = None
    keep_worse: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if not (self.loss is None or callable(self.loss) or self.loss in get_args(LossName)):
            raise ValueError(f"loss={self.loss!r}: use {', '.join(get_args(LossName))}, or a function")
        check_whole("epochs", self.epochs)
        check_whole("negatives", self.negatives)
        for name in ("batch_size", "patience", "newest"):
            if getattr(self, name) is not None:
                check_whole(name, getattr(self, name))
        for name in ("dropout", "test", "holdout"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ValueError(f"{name}={getattr(self, name)!r}: must be a share, from 0 to less than 1")
        if self.lr <= 0 or (self.clip is not None and self.clip <= 0):
            raise ValueError(f"lr={self.lr!r}, clip={self.clip!r}: must be positive")
        if self.patience is not None and not self.holdout:
            raise ValueError(f"patience={self.patience} needs holdout=, a share of the labels to watch")
        weights: Any = self.class_weights
        if isinstance(weights, str):
            if weights != "balanced":
                raise ValueError(f"class_weights={weights!r}: use 'balanced', or a number for each class")
        elif weights is not None:
            object.__setattr__(self, "class_weights", tuple(map(float, weights)))

    def __repr__(self) -> str:
        defaults = Training.__dataclass_fields__
        given = (f"{name}={value!r}" for name, value in vars(self).items() if value != defaults[name].default)
        return f"Training({', '.join(given)})"
