"""The set of touched vertices keeps the newest event time and the oldest arrival of each."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from d3gnn.kernel.touched import ARRIVAL, TIME, VERTEX, are_in, clear, make_touched, size, sort, touch_all

TOUCHES = st.lists(st.tuples(st.integers(0, 5), st.integers(-9, 9), st.integers(-9, 9)), max_size=20)


@given(st.lists(TOUCHES, max_size=4))
def test_a_touched_set_equals_a_dictionary(batches: list[list[tuple[int, int, int]]]) -> None:
    touched = make_touched(6)
    for batch in batches:
        expected: dict[int, tuple[int, int]] = {}
        for v, time, arrival in batch:
            newest, oldest = expected.get(v, (time, arrival))
            expected[v] = max(newest, time), min(oldest, arrival)
        columns = np.array(batch, np.int64).reshape(-1, 3).T
        touch_all(touched, columns[0].astype(np.int32), columns[1].copy(), columns[2].copy())
        entries = touched[1 : size(touched) + 1]
        assert {v: (t, a) for v, t, a in entries[:, [VERTEX, TIME, ARRIVAL]].tolist()} == expected
        assert entries[:, VERTEX].tolist() == list(expected), "in the order of touching"
        assert np.flatnonzero(are_in(touched, np.arange(6))).tolist() == sorted(expected)
        clear(touched)
        assert not are_in(touched, np.arange(6)).any()
        assert size(touched) == 0


def test_a_large_set_is_sorted_and_keeps_its_entries() -> None:
    rng = np.random.default_rng(0)
    touched = make_touched(5000)
    vertices = rng.permutation(5000)[:1000].astype(np.int32)
    time, arrival = rng.integers(0, 99, (2, 1000))
    touch_all(touched, vertices, time, arrival)
    before = touched[1:1001, VERTEX:].tolist()
    sort(touched)
    assert touched[1:1001, VERTEX:].tolist() == sorted(before)
    assert size(touched) == 1000
    clear(touched)
    assert not are_in(touched, np.arange(5000)).any()
