"""Aggregators that are sums at heart: a group, so that what was added can be taken back.

Sums are kept in float64, so that millions of additions and retractions of float32 messages leave no trace.
"""

from __future__ import annotations

import numpy as np

from d3gnn.kernel.adjacency import BEGIN, LENGTH, OTHER, Side
from d3gnn.kernel.aggregators.base import Aggregator
from d3gnn.kernel.compiled import lean
from d3gnn.kernel.prefetch import AHEAD, fetch, fetch_row
from d3gnn.kernel.touched import touch
from d3gnn.types import Doubles, Floats, Ints, Ints32


class Linear(Aggregator):
    """The sum of the messages; subclasses say how it ends."""

    invertible = True

    def add(
        self, src: Ints32, dst: Ints32, time: Ints, arrival: Ints,
        values: Floats, state: Doubles, count: Ints32, touched: Ints,
    ) -> None:  # fmt: skip
        _add(src, dst, time, arrival, values, state, count, touched)

    def retract(
        self, src: Ints32, dst: Ints32, time: Ints, arrival: Ints,
        values: Floats, state: Doubles, count: Ints32, touched: Ints,
    ) -> None:  # fmt: skip
        _retract(src, dst, time, arrival, values, state, count, touched)

    def replace(
        self, sources: Ints32, fresh: Floats, time: Ints, arrival: Ints,
        values: Floats, out: Side, state: Doubles, touched: Ints,
    ) -> int:  # fmt: skip
        difference = np.empty(state.shape[1], np.float64)
        return _replace(sources, fresh, time, arrival, values, *out, state, touched, difference)

    def recompute(
        self, destinations: Ints32, values: Floats, into: Side, state: Doubles, count: Ints32
    ) -> None:
        _recompute(destinations, values, *into, state, count)


@lean
def _add(
    src: Ints32, dst: Ints32, time: Ints, arrival: Ints,
    values: Floats, state: Doubles, count: Ints32, touched: Ints,
) -> None:  # fmt: skip
    width = state.shape[1]
    last = len(src) - 1
    for i in range(len(src)):
        next = min(last, i + AHEAD)
        fetch_row(values, src[next])
        fetch_row(state, dst[next])
        u, v = src[i], dst[i]
        for k in range(width):
            state[v, k] += values[u, k]
        count[v] += 1
        touch(touched, v, time[i], arrival[i])


@lean
def _retract(
    src: Ints32, dst: Ints32, time: Ints, arrival: Ints,
    values: Floats, state: Doubles, count: Ints32, touched: Ints,
) -> None:  # fmt: skip
    width = state.shape[1]
    for i in range(len(src)):
        u, v = src[i], dst[i]
        count[v] -= 1
        if count[v] == 0:
            for k in range(width):
                state[v, k] = 0.0
        else:
            for k in range(width):
                state[v, k] -= values[u, k]
        touch(touched, v, time[i], arrival[i])


@lean
def _replace(
    sources: Ints32, fresh: Floats, time: Ints, arrival: Ints,
    values: Floats, segments: Ints32, pool: Ints32, state: Doubles, touched: Ints, difference: Doubles,
) -> int:  # fmt: skip
    width = state.shape[1]
    messages = 0
    last = len(sources) - 1
    for i in range(len(sources)):
        fetch(segments, sources[min(last, i + 2)])
        next = sources[min(last, i + 1)]
        fetch_row(values, next)
        fetch(pool, segments[next, BEGIN])
        u = sources[i]
        changed = False
        for k in range(width):
            difference[k] = np.float64(fresh[i, k]) - np.float64(values[u, k])
            changed |= difference[k] != 0.0
            values[u, k] = fresh[i, k]
        if not changed:
            continue
        begin = segments[u, BEGIN]
        end = begin + segments[u, LENGTH]
        messages += end - begin
        for j in range(begin, end):
            next = pool[min(end - 1, j + AHEAD), OTHER]
            fetch(touched, next + 1)
            fetch_row(state, next)
            v = pool[j, OTHER]
            for k in range(width):
                state[v, k] += difference[k]
            touch(touched, v, time[i], arrival[i])
    return messages


@lean
def _recompute(
    destinations: Ints32, values: Floats, segments: Ints32, pool: Ints32, state: Doubles, count: Ints32
) -> None:
    width = state.shape[1]
    for v in destinations:
        begin = segments[v, BEGIN]
        end = begin + segments[v, LENGTH]
        for k in range(width):
            state[v, k] = 0.0
        for j in range(begin, end):
            u = pool[j, OTHER]
            for k in range(width):
                state[v, k] += values[u, k]
        count[v] = end - begin
