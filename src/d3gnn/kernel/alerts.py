"""Alerts: of all that is said of vertices, what is worth saying."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import index

import numpy as np

from d3gnn.types import Bools, Floats, Ints32

#: In place of what was said: it is no longer worth saying, but whoever heard it has to hear of its end.
LAPSED = -1


@dataclass(frozen=True)
class Alerts:
    """Which predictions come out: those whose score reaches `threshold`, of these `classes`, and, with
    `changed_class`, those that say another class than the last that came out for the vertex.

    A vertex of which nothing came out, or whose class is no longer worth saying, is as if it were new.

    >>> Alerts(threshold=0.9, classes=[1], changed_class=True)
    Alerts(threshold=0.9, classes=(1,), changed_class=True)
    """

    threshold: float | None = None
    classes: Sequence[int] | None = None
    changed_class: bool = False

    def __post_init__(self) -> None:
        # Plain numbers, so that they can be written down.
        if self.threshold is not None:
            object.__setattr__(self, "threshold", float(self.threshold))
            if np.isnan(self.threshold):
                raise ValueError("threshold=nan: a number, please")
        if self.classes is not None:
            object.__setattr__(self, "classes", tuple(map(index, self.classes)))
            if not self.classes:
                raise ValueError("classes=[]: at least one class, or None for all")

    def choose(self, said: Floats, rows: Ints32, reported: Ints32) -> Bools:
        """Which of what is `said` of rows comes out; `reported` is, by row, the class plus 1 that last did,
        or 1 where classes do not matter, or `LAPSED`.
        """
        prediction, score = said[:, 0], said[:, 1]
        worth: Bools = np.ones(len(rows), np.bool_)
        if self.threshold is not None:
            worth &= score >= self.threshold
        if self.classes is not None:
            worth &= np.isin(prediction, self.classes)
        before = reported[rows]
        # Without classes, a prediction may be any number.
        now = remembered(worth, before, prediction + 1 if self.changed_class else 1)
        reported[rows] = now
        return worth & (now != before) if self.changed_class else worth


def remembered(worth: Bools, before: Ints32, now: Floats | int = 1) -> Ints32:
    """What is to be known of those that were worth saying just now, or not, beside what was known before."""
    found: Ints32 = np.where(worth, now, np.where(before != 0, LAPSED, 0)).astype(np.int32)
    return found
