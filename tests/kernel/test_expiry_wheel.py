"""The wheel returns exactly the rows that have expired, whatever was linked, prolonged and unlinked."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
from hypothesis import Phase, given, settings

from d3gnn.events.duration import NEVER
from d3gnn.kernel.compiled import lean
from d3gnn.kernel.expiry_wheel import (
    EXPIRES,
    VERTEX_COLUMNS,
    WHEEL_SIZE,
    link,
    list_expired,
    next_expiry,
    take_expired,
    unlink,
)
from d3gnn.types import Ints

#: Around powers of 64, at both ends of 64 bits, and close together.
TIMES = st.one_of(
    st.integers(-5, 200),
    st.sampled_from([64**k + d for k in range(1, 11) for d in (-1, 0, 1)]),
    st.sampled_from([-(2**63), -(2**63) + 1, NEVER - 1, NEVER]),
    st.integers(1_700_000_000_000_000, 1_700_000_100_000_000),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("link"), TIMES),
        st.tuples(st.just("prolong"), st.integers(0, 300)),
        st.tuples(st.just("unlink"), st.integers(0, 20)),
        st.tuples(st.just("expire"), TIMES),
    ),
    max_size=60,
)


@lean
def _link(rows: Ints, wheel: Ints, r: int, expires: int) -> None:
    link(rows, wheel, r, expires)


@lean
def _unlink(rows: Ints, wheel: Ints, r: int) -> None:
    unlink(rows, wheel, r)


@settings(phases=(Phase.explicit, Phase.reuse, Phase.generate))  # what fails may take long
@given(STEPS)
def test_the_wheel_is_a_table_of_times(steps: list[tuple[str, int]]) -> None:
    rows, wheel = np.zeros((64, VERTEX_COLUMNS), np.int64), np.zeros(WHEEL_SIZE, np.int64)
    expires: dict[int, int] = {}
    free, newest = list(range(64)), -(2**63)
    for what, number in steps:
        if what == "link" and number >= newest:
            expires[free[0]] = number
            _link(rows, wheel, free.pop(0), number)
        elif what == "prolong" and expires:
            r = min(expires)
            expires[r] = rows[r, EXPIRES] = min(expires[r] + number, NEVER)
        elif what == "unlink" and expires:
            r = sorted(expires)[number % len(expires)]
            del expires[r]
            _unlink(rows, wheel, r)
            free.append(r)  # a later edge uses the row again
        elif what == "expire":
            newest = max(newest, number)
            first, count = take_expired(rows, wheel, newest)
            found, times = np.empty(count, np.int32), np.empty(count, np.int64)
            list_expired(rows, first, found, times)
            expected = {r: time for r, time in expires.items() if time < newest}
            assert dict(zip(found.tolist(), times.tolist(), strict=True)) == expected
            expires = {r: time for r, time in expires.items() if r not in expected}
            free += expected
        assert next_expiry(wheel) <= min(expires.values(), default=NEVER)
