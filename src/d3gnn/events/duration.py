"""Lengths of event time in settings."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

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


def duration(name: str, given: Any, *, never: bool = False, least: int = 1) -> int:
    """A duration as an integer of at least `least`; `never` allows the text `never`.

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
    if found is None or not (least <= found <= _LONGEST or (never and found == NEVER)):
        units = ", ".join(unit for unit in _MICROSECONDS if unit != "min")
        raise ValueError(
            f"{name}={given!r}: must be a number with a unit ({units}), as in '30d'; a timedelta; or an "
            "integer in the unit of the event times" + ("; or 'never'" if never else "")
        )
    return found
