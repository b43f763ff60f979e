"""When a model should be trained again: after labels, after a time, or when its errors drift."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

from d3gnn.events.duration import Duration, duration
from d3gnn.whole_numbers import check_whole


class Detector(Protocol):
    """Watches a stream of errors."""

    def update(self, value: float) -> bool:
        """Take in an error; returns whether it drifts."""


class Trigger:
    """Decides whether a training is due. Triggers with `|` between them: either."""

    def start(self) -> Watch:
        """A watch that begins now."""
        raise NotImplementedError

    def __or__(self, other: Trigger) -> Trigger:
        return Either(self, other)


class Watch:
    """What a trigger has seen since the last training."""

    def see(self, errors: Iterable[float], labels: int, time: int) -> str | None:
        """Errors of scored predictions, the number of new training labels, and the newest event time.

        Returns why a training is due; None if it is not.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class AfterLabels(Trigger):
    """Due after this many new labels.

    >>> watch = AfterLabels(3).start()
    >>> watch.see([], 2, 0), watch.see([], 1, 0)
    (None, '3 new labels')
    """

    labels: int

    def __post_init__(self) -> None:
        check_whole("labels", self.labels)

    def start(self) -> Watch:
        return _Labels(self.labels)


class _Labels(Watch):
    def __init__(self, wanted: int) -> None:
        self._wanted, self._seen = wanted, 0

    def see(self, errors: Iterable[float], labels: int, time: int) -> str | None:
        self._seen += labels
        return f"{self._seen} new labels" if self._seen >= self._wanted else None


@dataclass(frozen=True)
class Every(Trigger):
    """Due when this much event time has passed: `"1d"` (s, m, h, d), a timedelta, or a number in the unit of
    the event times.

    >>> watch = Every(10).start()
    >>> watch.see([], 0, 5), watch.see([], 0, 14), watch.see([], 0, 15)
    (None, None, '10 of event time since the last training')
    """

    period: Duration

    def __post_init__(self) -> None:
        object.__setattr__(self, "period", duration("period", self.period))

    def start(self) -> Watch:
        assert isinstance(self.period, int)
        return _Period(self.period)


class _Period(Watch):
    def __init__(self, period: int) -> None:
        self._period, self._begin = period, -1

    def see(self, errors: Iterable[float], labels: int, time: int) -> str | None:
        if self._begin < 0:
            self._begin = time
        passed = time - self._begin
        return f"{passed} of event time since the last training" if passed >= self._period else None


#: Detectors of river by name.
_DETECTORS = {
    "adwin": ("river.drift", "ADWIN"),
    "page-hinkley": ("river.drift", "PageHinkley"),
    "ddm": ("river.drift.binary", "DDM"),
}


@dataclass(frozen=True)
class OnDrift(Trigger):
    """Due when the errors of scored predictions drift.

    detector:
        `adwin`, `page-hinkley` or `ddm` (0 or 1 as errors only), from river: `pip install d3gnn[drift]`. Or a
        function that makes a detector: something with `update(error) -> bool`.
    at_least:
        Errors to see first, after every training.

    >>> class Worse:
    ...     def update(self, value: float) -> bool:
    ...         return value > 0.5
    >>> watch = OnDrift(Worse, at_least=2).start()
    >>> watch.see([1.0], 1, 0), watch.see([0.0], 1, 0), watch.see([1.0], 1, 0)
    (None, None, 'drift after 3 scored labels')
    """

    detector: str | Callable[[], Detector] = "adwin"
    at_least: int = 30

    def __post_init__(self) -> None:
        if isinstance(self.detector, str) and self.detector not in _DETECTORS:
            raise ValueError(
                f"detector={self.detector!r}: use {', '.join(_DETECTORS)}, or a function that makes one"
            )

    def start(self) -> Watch:
        detector = _River(self.detector) if isinstance(self.detector, str) else self.detector()
        return _Drift(detector, self.at_least)


class _River:
    """A detector of river, whose `update` returns nothing."""

    def __init__(self, name: str) -> None:
        module, kind = _DETECTORS[name]
        try:
            self._detector: Any = getattr(import_module(module), kind)()
        except ImportError as error:
            raise ImportError(f"OnDrift({name!r}) needs river: pip install d3gnn[drift]") from error

    def update(self, value: float) -> bool:
        self._detector.update(value)
        return bool(self._detector.drift_detected)


class _Drift(Watch):
    def __init__(self, detector: Detector, at_least: int) -> None:
        self._detector, self._at_least, self._seen = detector, at_least, 0
        self._due: str | None = None

    def see(self, errors: Iterable[float], labels: int, time: int) -> str | None:
        for error in errors:
            self._seen += 1
            if self._detector.update(error) and self._due is None and self._seen >= self._at_least:
                self._due = f"drift after {self._seen} scored labels"
        return self._due


@dataclass(frozen=True)
class Either(Trigger):
    """Due when one of two is."""

    one: Trigger
    other: Trigger

    def start(self) -> Watch:
        return _Both(self.one.start(), self.other.start())


class _Both(Watch):
    def __init__(self, one: Watch, other: Watch) -> None:
        self._watches = one, other

    def see(self, errors: Iterable[float], labels: int, time: int) -> str | None:
        known = list(errors)
        reasons = [watch.see(known, labels, time) for watch in self._watches]
        return next((reason for reason in reasons if reason is not None), None)
