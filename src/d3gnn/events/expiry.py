"""How long edges and vertices live, by event time."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any, NamedTuple

import numpy as np

#: A duration: text with a unit, a timedelta, or an integer in the unit of the event times.
Duration = str | timedelta | int

#: The lifetime, and the expiry, of what never expires.
NEVER = int(np.iinfo(np.int64).max)
#: The longest other lifetime, so that clocks and lifetimes can be added.
_LONGEST = 2**62
_MICROSECONDS = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
    "w": 604_800_000_000,
}


class Expiry(NamedTuple):
    """The lifetimes of a schema, in the unit of event times."""

    #: Of an edge whose events name none; `NEVER` for edges that expire only by their own.
    ttl: int
    #: Of a vertex after its last event; None if vertices do not expire.
    vertex_ttl: int | None = None
    #: How far the newest event time may be behind the clock; None if only events move it.
    idle: int | None = None


def duration(name: str, given: Any, *, never: bool = False) -> int:
    """A duration as an integer; `never` allows the text `never`.

    >>> duration("ttl", "30d"), duration("ttl", timedelta(seconds=2)), duration("ttl", 5)
    (2592000000000, 2000000, 5)
    """
    found: int | None = None
    if isinstance(given, timedelta):
        found = given // timedelta(microseconds=1)
    elif isinstance(given, str):
        if never and given == "never":
            return NEVER
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", given)
        if match is not None and match[2] in _MICROSECONDS:
            found = round(float(match[1]) * _MICROSECONDS[match[2]])
    elif isinstance(given, int | np.integer) and not isinstance(given, bool):
        found = NEVER if never and given == NEVER else int(given)
    if found is None or not (1 <= found <= _LONGEST or (never and found == NEVER)):
        units = ", ".join(unit for unit in _MICROSECONDS if unit != "min")
        raise ValueError(
            f"{name}={given!r}: must be a number with a unit ({units}), as in '30d'; a timedelta; or an "
            "integer above 0 in the unit of the event times" + ("; or 'never'" if never else "")
        )
    return found
