"""Alerts: a filter for predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import index

import numpy as np

from d3gnn.types import Bools, Floats, Ints32

#: Instead of a class: the vertex had an alert and has none now. Its deletion must still be reported.
LAPSED = -1


@dataclass(frozen=True)
class Alerts:
    """Filter for predictions: an alert has a score of at least `threshold` and one of `classes`. With
    `changed_class`, it also has another class than the vertex's last alert.

    A vertex whose prediction is no alert any more counts as new: its next alert is emitted again.

    >>> Alerts(threshold=0.9, classes=[1], changed_class=True)
    Alerts(threshold=0.9, classes=(1,), changed_class=True)
    """

    threshold: float | None = None
    classes: Sequence[int] | None = None
    changed_class: bool = False

    def __post_init__(self) -> None:
        # Plain numbers, so that they can be saved.
        if self.threshold is not None:
            object.__setattr__(self, "threshold", float(self.threshold))
            if np.isnan(self.threshold):
                raise ValueError("Alerts(threshold=nan): must be a number")
        if self.classes is not None:
            object.__setattr__(self, "classes", tuple(map(index, self.classes)))
            if not self.classes:
                raise ValueError("Alerts(classes=[]): must have at least one class; None selects all classes")

    def select(self, predictions: Floats, rows: Ints32, last: Ints32) -> Bools:
        """Which predictions of rows are alerts.

        `last` is updated: by row, the class plus 1 of the last alert, 1 where classes do not matter,
        `LAPSED`, or 0 for none.
        """
        prediction, score = predictions[:, 0], predictions[:, 1]
        is_alert: Bools = np.ones(len(rows), np.bool_)
        if self.threshold is not None:
            is_alert &= score >= self.threshold
        if self.classes is not None:
            is_alert &= np.isin(prediction, self.classes)
        before = last[rows]
        # Without classes, a prediction may be any number.
        now = remembered(is_alert, before, prediction + 1 if self.changed_class else 1)
        last[rows] = now
        return is_alert & (now != before) if self.changed_class else is_alert


def remembered(is_alert: Bools, before: Ints32, now: Floats | int = 1) -> Ints32:
    """What is remembered of rows after some of them had an alert, given what was remembered before."""
    found: Ints32 = np.where(is_alert, now, np.where(before != 0, LAPSED, 0)).astype(np.int32)
    return found
