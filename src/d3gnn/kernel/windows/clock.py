"""What windows tell the time by: when batches are taken in, or when their events happened."""

from __future__ import annotations

from operator import index
from typing import Literal, get_args

import numpy as np

from d3gnn.events import NO_TIME, EventBatch, Reason
from d3gnn.types import Small

Clock = Literal["batch", "event"]
#: Far enough from the end of 64 bits that the longest wait can be added.
_LATEST = 2**62


def check_clock(clock: str) -> Clock:
    """Refuse what is no clock."""
    for known in get_args(Clock):
        if clock == known:
            return clock  # type: ignore[return-value]
    raise ValueError(f"clock={clock!r}: choose one of {', '.join(get_args(Clock))}")


def check_time(clock: int) -> int:
    """Microseconds as a plain number; refuses what are none."""
    try:
        given = index(clock)
    except TypeError:
        raise ValueError(f"clock={clock!r}: a whole number of microseconds, please") from None
    if abs(given) > _LATEST:
        raise ValueError(f"clock={clock!r}: microseconds since 1970, please; that is beyond all times")
    return given


def newest_event(events: EventBatch, status: Small, clock: int) -> int:
    """The newest event time of a batch, dead letters aside; 0 if there is none.

    An event that says it happened after it arrived, which is at `clock` unless it says so itself, counts as
    one of its arrival: a single one from the future would otherwise stop the clock until then.
    """
    arrival = np.full(len(events), NO_TIME) if events.arrival is None else events.arrival
    time = np.minimum(events.time, np.where(arrival == NO_TIME, clock, arrival))
    return int(time[status < Reason.NULL_ID].max(initial=0))
