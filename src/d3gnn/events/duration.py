"""Lengths of time in settings."""

from __future__ import annotations

import re
from datetime import timedelta

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_TEXT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([smhd])\s*")
_MICROSECOND = timedelta(microseconds=1)
#: The longest one: 146,000 years.
_LONGEST = 2**62


def duration(name: str, given: object) -> int:
    """A length of event time in microseconds, from `"30d"` or a `timedelta`; an integer stays as it is.

    `name` is the setting, for errors.

    >>> duration("tombstones", "1.5h"), duration("tombstones", timedelta(days=1)), duration("tombstones", 7)
    (5400000000, 86400000000, 7)
    """
    length = None
    if isinstance(given, timedelta):
        length = given // _MICROSECOND
    elif isinstance(given, str) and (match := _TEXT.fullmatch(given)):
        length = round(float(match[1]) * _UNITS[match[2]] * 1_000_000)
    elif isinstance(given, int) and not isinstance(given, bool):
        length = given
    if length is None or not 0 <= length <= _LONGEST:
        raise ValueError(
            f"{name}={given!r}: give a length of time such as '30d', '12h', '5m' or '30s', a timedelta, or a "
            "number of microseconds"
        )
    return length
