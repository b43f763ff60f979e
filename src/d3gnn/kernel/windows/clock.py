"""The clocks of windows: when batches are processed, or when their events happened."""

from __future__ import annotations

from operator import index
from typing import Literal, NamedTuple, get_args

import numpy as np

from d3gnn.events import EventBatch, Reason
from d3gnn.events.event import NO_TIME
from d3gnn.types import Small

Clock = Literal["batch", "event"]
#: Far enough from the end of 64 bits that the longest delay can be added.
_LATEST = 2**62


class Clocks(NamedTuple):
    """Both clocks of a pipeline, in microseconds; neither goes back.

    Every host advances them in two steps, since Partition needs the batch time and decides which events
    count:

    >>> clocks = Clocks(batch=100, event=40).at(90)
    >>> clocks
    Clocks(batch=100, event=40, read=90)
    >>> from d3gnn.events import EventBatch, edge
    >>> clocks.seen(EventBatch.of([edge(1, 2, time=60)]), np.array([Reason.APPLIED]))
    Clocks(batch=100, event=60, read=90)

    If the system's clock was set back, they advance by as much as it does, until it has caught up:

    >>> clocks.at(95)
    Clocks(batch=105, event=40, read=95)
    """

    #: When the newest batch was processed.
    batch: int = 0
    #: The newest event time.
    event: int = 0
    #: The last time that was given to `at`; 0: unknown.
    read: int = 0

    def at(self, time: int) -> Clocks:
        """The clocks when a batch is processed at this time."""
        if time >= self.batch:
            return Clocks(time, self.event, time)
        elapsed = time - self.read if 0 < self.read < time else 0
        return Clocks(self.batch + elapsed, self.event, time)

    def seen(self, events: EventBatch, status: Small) -> Clocks:
        """The clocks after these events, whose results are `status` (`d3gnn.events.Reason`)."""
        newest = newest_event(events, status, self.batch)
        return Clocks(self.batch, newest, self.read) if newest > self.event else self

    def now(self, clock: Clock) -> int:
        """The time that windows use."""
        return self.event if clock == "event" else self.batch


def check_clock(clock: str) -> Clock:
    """Refuse an unknown clock."""
    for known in get_args(Clock):
        if clock == known:
            return clock  # type: ignore[return-value]
    raise ValueError(f"clock={clock!r}: choose one of {', '.join(get_args(Clock))}")


def check_time(clock: int) -> int:
    """Microseconds as an int; refuses anything else."""
    try:
        given = index(clock)
    except TypeError:
        raise ValueError(f"clock={clock!r}: must be an integer number of microseconds") from None
    if abs(given) > _LATEST:
        raise ValueError(f"clock={clock!r}: out of range; must be microseconds since 1970")
    return given


def newest_event(events: EventBatch, status: Small, clock: int) -> int:
    """The newest event time of a batch, dead letters excluded; 0 if there is none.

    An event time after the event's arrival (`clock` unless the event has one) counts as the arrival: a single
    event from the future would otherwise stop the clock until then.
    """
    arrival = np.full(len(events), NO_TIME) if events.arrival is None else events.arrival
    time = np.minimum(events.time, np.where(arrival == NO_TIME, clock, arrival))
    return int(time[status < Reason.NULL_ID].max(initial=0))
