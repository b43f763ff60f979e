"""Alerts: of all that is said of vertices, what is worth saying."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from d3gnn.types import Bools, Floats, Ints32


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
        if self.threshold is not None and np.isnan(self.threshold):
            raise ValueError("threshold=nan: a number, please")
        if self.classes is not None:
            object.__setattr__(self, "classes", tuple(self.classes))
            if not self.classes:
                raise ValueError("classes=[]: at least one class, or None for all")

    def choose(self, said: Floats, rows: Ints32, reported: Ints32) -> Bools:
        """Which of what is `said` of rows comes out; `reported` is the class plus 1 that last did, by row."""
        prediction, score = said[:, 0], said[:, 1]
        worth: Bools = np.ones(len(rows), np.bool_)
        if self.threshold is not None:
            worth &= score >= self.threshold
        if self.classes is not None:
            worth &= np.isin(prediction, self.classes)
        now = np.where(worth, prediction.astype(np.int32) + 1, 0).astype(np.int32)
        chosen = worth & (now != reported[rows]) if self.changed_class else worth
        reported[rows] = now
        return chosen
