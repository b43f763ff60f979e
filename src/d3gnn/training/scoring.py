"""Prequential scores: each label scores the prediction that was current when it arrived, then it may train.

A late label scores the prediction at its own time, as far back as `late` reaches.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from d3gnn.events.duration import Duration, duration
from d3gnn.nn.heads import PairHead, Regressor
from d3gnn.nn.model import GNN
from d3gnn.training.metrics import ClassScores, Metrics, NumberScores
from d3gnn.training.tasks import predictions
from d3gnn.training.triggers import Trigger
from d3gnn.types import Array, Doubles, Floats, Ints
from d3gnn.whole_numbers import check_whole


@dataclass(frozen=True)
class Scoring:
    """Settings of prequential scores.

    window:
        Labels in the sliding window.
    late:
        How long before the newest event time a label may be, to be scored by the prediction at its time:
        `"1h"` (s, m, h, d), a timedelta, or a number in the unit of the event times. Costs a copy of all
        embeddings, and of every change within that time. By default, each label scores the prediction that
        is current when it arrives.
    trigger:
        When a training is due; see `d3gnn.training`.

    >>> Scoring(window=100, late="1h").late
    3600000000
    """

    window: int = 1000
    late: Duration | None = None
    trigger: Trigger | None = None

    def __post_init__(self) -> None:
        check_whole("window", self.window)
        if self.late is not None:
            object.__setattr__(self, "late", duration("late", self.late))


class _Change(NamedTuple):
    """Embeddings that a batch replaced; rows of NaN for vertices that did not exist."""

    time: int  # the newest event time so far
    code: Ints
    before: Floats


class History:
    """The embedding of every vertex at any time that is not longer ago than a bound."""

    def __init__(self, bound: int, width: int) -> None:
        self.bound, self.width, self._changes = bound, width, deque[_Change]()
        self._now = np.full((0, width), np.nan, np.float32)
        self.newest = np.iinfo(np.int64).min

    def record(self, time: int, code: Ints, embedding: Floats) -> None:
        """A batch changed these vertices; NaN for deleted ones."""
        self.newest = max(int(self.newest), time)
        if len(code):
            missing = int(code.max()) + 1 - len(self._now)
            if missing > 0:
                more = np.full((max(missing, len(self._now)), self._now.shape[1]), np.nan, np.float32)
                self._now = np.concatenate([self._now, more])
            self._changes.append(_Change(int(self.newest), code, self._now[code]))
            self._now[code] = embedding
        while self._changes and self._changes[0].time < self.newest - self.bound:
            self._changes.popleft()

    def at(self, code: int, time: int) -> Floats | None:
        """The embedding at a time; None if the vertex did not exist, or the time is too long ago."""
        if time < self.newest - self.bound or code >= len(self._now):
            return None
        found = self._now[code]
        for change in reversed(self._changes):
            if change.time <= time:
                break
            here = np.flatnonzero(change.code == code)
            if len(here):
                found = change.before[here[-1]]
        return None if np.isnan(found).any() else found


class Scorer:
    """Scores of one model; a new model goes on with the same ones."""

    def __init__(self, settings: Scoring, model: GNN) -> None:
        if isinstance(model.head, PairHead):
            raise ValueError("scoring: a model with a head for pairs predicts nothing of vertices")
        self.settings, self.model = settings, model
        #: Labels without a prediction at their time.
        self.unscored = 0
        self._numbers = isinstance(model.head, Regressor)
        self.scores: ClassScores | NumberScores
        if self._numbers:
            self.scores = NumberScores(settings.window)
        else:
            with torch.no_grad():
                classes = predictions(model, torch.zeros(1, model.out_channels)).shape[1]
            self.scores = ClassScores(classes, settings.window)
        self._watch = None if settings.trigger is None else settings.trigger.start()
        #: Why a training is due; None if it is not.
        self.due: str | None = None

    def score(self, embedding: Floats, label: Array, labels: int, time: int) -> None:
        """Score the embeddings at the times of labels; `labels` is the number of new ones, scored or not."""
        errors: Doubles = np.zeros(0)
        self.unscored += labels - len(label)
        if len(label):
            errors = self._errors(embedding, label)
        if self._watch is not None and self.due is None:
            self.due = self._watch.see(errors.tolist(), labels, time)

    def _errors(self, embedding: Floats, label: Array) -> Doubles:
        with torch.no_grad():
            made = predictions(self.model, torch.from_numpy(embedding)).double()
        if isinstance(self.scores, NumberScores):
            return self.scores.add(made[:, 0].numpy(), label.astype(np.float64))
        true = label.astype(np.int64)
        known = (true >= 0) & (true < self.scores.classes)
        self.unscored += int((~known).sum())
        return self.scores.add(torch.softmax(made, 1).numpy()[known], true[known])

    def trained(self, model: GNN) -> None:
        """The model was trained, with or without success: the trigger begins again."""
        self.model, self.due = model, None
        if self.settings.trigger is not None:
            self._watch = self.settings.trigger.start()

    def metrics(self) -> dict[str, Metrics]:
        """`recent`, over the window, and `total`; and how many labels were scored and not."""
        counts: Metrics = {"scored": self.scores.count, "unscored": self.unscored}
        return {"recent": self.scores.recent(), "total": self.scores.total() | counts}
