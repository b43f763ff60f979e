"""Limits: events that are well formed, and that no sane source sends."""

from __future__ import annotations

from typing import Any

import numpy as np

from d3gnn.events.keys import Keys, StringKeys
from d3gnn.types import Array, Bools, Ints

#: Bytes of the longest id or edge key.
LONGEST_ID = 1024
#: The year 2000 in microseconds. A clock before it is artificial, and no event is ahead of it.
FIRST_REAL_CLOCK = 946_684_800_000_000
#: What `max_ahead` is where there is no bound.
UNBOUNDED = int(np.iinfo(np.int64).max)


def check_max_abs(given: Any) -> float:
    """A bound on absolute values as a float; raises ValueError for anything else."""
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given < float("inf"):
        raise ValueError(f"max_abs={given!r}: must be a number above 0, or None for no bound")
    return float(given)


def are_ahead(time: Ints, arrival: Ints, max_ahead: int) -> Bools:
    """Which events happen later than this many microseconds after their arrival."""
    # Compared before they are subtracted: times may be anywhere in 64 bits.
    ahead: Bools = (arrival >= FIRST_REAL_CLOCK) & (time > arrival) & (time - arrival > max_ahead)
    return ahead


def are_too_long(keys: Keys | None) -> Array | None:
    """Which ids or keys are too long; None if none is.

    >>> from d3gnn.events.keys import keys_of
    >>> are_too_long(keys_of(["a", "b" * 2000])).tolist(), are_too_long(keys_of(["a"]))
    ([False, True], None)
    """
    if not isinstance(keys, StringKeys) or keys.offsets[-1] - keys.offsets[0] <= LONGEST_ID:
        return None
    long = keys.offsets[1:] - keys.offsets[:-1] > LONGEST_ID
    return long if long.any() else None
