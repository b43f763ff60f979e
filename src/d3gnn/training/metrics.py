"""How good predictions were: over a window, and in total."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from d3gnn.types import Array, Doubles, Ints

#: Names and values; None where there is none yet, such as the AUC of a single class.
Metrics: TypeAlias = dict[str, float | None]
#: Places of a histogram of probabilities, from which the AUC in total is computed.
_BINS = 4096


def accuracy(confusion: Ints) -> float:
    """The share of right predictions; `confusion` [true, predicted]."""
    return float(np.trace(confusion) / max(1, confusion.sum()))


def macro_f1(confusion: Ints) -> float:
    """The mean over classes, that occur, of the harmonic mean of precision and recall.

    >>> macro_f1(np.array([[3, 1, 0], [0, 4, 0], [0, 0, 0]]))
    0.873...
    """
    hits = np.diag(confusion).astype(np.float64)
    both = confusion.sum(0) + confusion.sum(1)
    return float(np.mean(2 * hits[both > 0] / both[both > 0])) if both.any() else 0.0


def auc(positive: Array, negative: Array) -> float | None:
    """The probability that a positive scores above a negative one; from counts by ascending score.

    >>> auc(np.array([0, 1, 1]), np.array([2, 1, 0]))
    0.916...
    """
    pairs = float(positive.sum()) * float(negative.sum())
    if not pairs:
        return None
    below = np.cumsum(negative) - negative
    return float((positive * (below + 0.5 * negative)).sum() / pairs)


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


class ClassScores:
    """Accuracy, macro F1, AUC and log loss of class probabilities.

    Of two classes, the AUC is that of the second; of more, the mean over each class against all others. In
    total it is computed from a histogram, accurate to about 1 / 4096.
    """

    def __init__(self, classes: int, window: int) -> None:
        self.classes, self.window, self.count = classes, window, 0
        self._confusion = np.zeros((classes, classes), np.int64)
        self._log_loss = 0.0
        self._histogram = np.zeros((2, classes, _BINS), np.int64)  # others and own, by class and probability
        self._recent = np.zeros((window, classes))
        self._recent_class = np.zeros(window, np.int64)

    def add(self, probability: Doubles, true: Ints) -> Doubles:
        """Score predictions [n, classes]; returns the error of each, 0 or 1."""
        predicted = probability.argmax(1)
        np.add.at(self._confusion, (true, predicted), 1)
        self._log_loss += float(_log_losses(probability, true).sum())
        place = np.minimum((probability * _BINS).astype(np.int64), _BINS - 1)
        for c in range(self.classes):
            np.add.at(self._histogram[:, c], ((true == c).astype(np.int64), place[:, c]), 1)
        last = np.arange(max(0, len(true) - self.window), len(true))
        where = (self.count + last) % self.window
        self._recent[where], self._recent_class[where] = probability[last], true[last]
        self.count += len(true)
        errors: Doubles = (predicted != true).astype(np.float64)
        return errors

    def total(self) -> Metrics:
        """Over all predictions."""
        chosen = [1] if self.classes == 2 else range(self.classes)
        areas = [auc(self._histogram[1, c], self._histogram[0, c]) for c in chosen]
        loss = self._log_loss / self.count if self.count else None
        return _metrics(self._confusion, _mean(areas), loss)

    def recent(self) -> Metrics:
        """Over the last `window` predictions."""
        n = min(self.count, self.window)
        probability, true = self._recent[:n], self._recent_class[:n]
        confusion = np.zeros_like(self._confusion)
        np.add.at(confusion, (true, probability.argmax(1)), 1)
        areas = []
        for c in [1] if self.classes == 2 else range(self.classes):
            _, place = np.unique(probability[:, c], return_inverse=True)
            counts = [np.bincount(place[mask], minlength=n) for mask in (true == c, true != c)]
            areas.append(auc(*counts))
        loss = float(_log_losses(probability, true).mean()) if n else None
        return _metrics(confusion, _mean(areas), loss)


def _metrics(confusion: Ints, area: float | None, loss: float | None) -> Metrics:
    if not confusion.any():
        return {"accuracy": None, "macro_f1": None, "auc": None, "log_loss": None}
    return {"accuracy": accuracy(confusion), "macro_f1": macro_f1(confusion), "auc": area, "log_loss": loss}


def _log_losses(probability: Doubles, true: Ints) -> Doubles:
    losses: Doubles = -np.log(np.clip(probability[np.arange(len(true)), true], 1e-15, None))
    return losses


class NumberScores:
    """Mean absolute error and root mean squared error of predicted numbers."""

    def __init__(self, window: int) -> None:
        self.window, self.count = window, 0
        self._sums, self._recent = np.zeros(2), np.zeros(window)

    def add(self, predicted: Doubles, true: Doubles) -> Doubles:
        """Score predictions [n]; returns the absolute error of each."""
        errors: Doubles = np.abs(predicted - true)
        self._sums += errors.sum(), (errors**2).sum()
        last = np.arange(max(0, len(errors) - self.window), len(errors))
        self._recent[(self.count + last) % self.window] = errors[last]
        self.count += len(errors)
        return errors

    def total(self) -> Metrics:
        """Over all predictions."""
        return _of_errors(float(self._sums[0]), float(self._sums[1]), self.count)

    def recent(self) -> Metrics:
        """Over the last `window` predictions."""
        errors = self._recent[: min(self.count, self.window)]
        return _of_errors(float(errors.sum()), float((errors**2).sum()), len(errors))


def _of_errors(total: float, squares: float, count: int) -> Metrics:
    if not count:
        return {"mae": None, "rmse": None}
    return {"mae": total / count, "rmse": (squares / count) ** 0.5}
