"""Aggregators that keep a sum. Sums form a group, so a message that was added can be taken out again.

Sums are kept in float64, so millions of additions and retractions of float32 messages leave no trace, unless
some were far larger than what remains: each sum has a bound that tells (see `cancellation`).
"""

from __future__ import annotations

import numpy as np

from d3gnn.kernel.adjacency import BEGIN, EDGE, LENGTH, OTHER, Side
from d3gnn.kernel.aggregators.base import Aggregator, EdgeArrays, Messages, weight_of
from d3gnn.kernel.aggregators.cancellation import SENT, TAKEN, bound_of, larger, take_bound
from d3gnn.kernel.compiled import inlined, lean
from d3gnn.kernel.prefetch import AHEAD, fetch, fetch_row
from d3gnn.kernel.touched import touch
from d3gnn.types import Doubles, Floats, Ints, Ints32


@inlined
def add_up(is_first: bool, partial: Floats, total: Doubles, params: Ints) -> None:
    """Add a partial sum to the total."""
    for k in range(len(total)):
        total[k] += partial[k]


@inlined
def copy_total(count: int, total: Doubles, params: Ints, aggregate: Floats) -> None:
    """The sum is the aggregate."""
    for k in range(len(total)):
        aggregate[k] = total[k]


class Linear(Aggregator):
    """Keeps the sum of the messages; subclasses finish it."""

    invertible = True
    merge = staticmethod(add_up)
    finish = staticmethod(copy_total)

    def __init__(self) -> None:
        self._difference = np.empty(0)

    def add(self, edges: Messages, arrays: EdgeArrays, touched: Ints, invalidated: Ints) -> None:
        add_messages(*edges, *arrays, touched)

    def retract(self, edges: Messages, arrays: EdgeArrays, touched: Ints, invalidated: Ints) -> None:
        retract_messages(*edges, *arrays, touched)

    def replace(
        self, sources: Ints32, fresh: Floats, time: Ints, arrival: Ints, arrays: EdgeArrays, out: Side,
        touched: Ints, invalidated: Ints,
    ) -> int:  # fmt: skip
        values, edge_values, state, _, bounds = arrays
        if len(self._difference) != state.shape[1]:
            self._difference = np.empty(state.shape[1])
        return replace_messages(
            sources, fresh, time, arrival, *out, values, edge_values, state, bounds, touched, self._difference
        )

    def recompute(self, destinations: Ints32, arrays: EdgeArrays, into: Side) -> None:
        segments, pool = into
        recompute_sums(destinations, segments, pool, *arrays)


@lean
def add_messages(
    src: Ints32, dst: Ints32, slot: Ints32, time: Ints, arrival: Ints,
    values: Floats, edge_values: Floats, state: Doubles, count: Ints32, bounds: Doubles, touched: Ints,
) -> None:  # fmt: skip
    width = state.shape[1]
    last = len(src) - 1
    for i in range(len(src)):
        next = min(last, i + AHEAD)
        fetch_row(values, src[next])
        fetch_row(state, dst[next])
        u, v = src[i], dst[i]
        weight = np.float64(weight_of(edge_values, slot[i]))
        for k in range(width):
            state[v, k] += weight * values[u, k]
        take_bound(bounds, v, abs(weight) * bounds[u, SENT])
        count[v] += 1
        touch(touched, v, time[i], arrival[i])


@lean
def retract_messages(
    src: Ints32, dst: Ints32, slot: Ints32, time: Ints, arrival: Ints,
    values: Floats, edge_values: Floats, state: Doubles, count: Ints32, bounds: Doubles, touched: Ints,
) -> None:  # fmt: skip
    width = state.shape[1]
    for i in range(len(src)):
        u, v = src[i], dst[i]
        count[v] -= 1
        if count[v] == 0:
            bounds[v, TAKEN] = 0.0
            for k in range(width):
                state[v, k] = 0.0
        else:
            weight = np.float64(weight_of(edge_values, slot[i]))
            for k in range(width):
                state[v, k] -= weight * values[u, k]
        touch(touched, v, time[i], arrival[i])


@lean
def replace_messages(
    sources: Ints32, fresh: Floats, time: Ints, arrival: Ints, segments: Ints32, pool: Ints32,
    values: Floats, edge_values: Floats, state: Doubles, bounds: Doubles, touched: Ints, difference: Doubles,
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
        changed, bits = False, np.int32(0)
        for k in range(width):
            difference[k] = np.float64(fresh[i, k]) - np.float64(values[u, k])
            changed |= difference[k] != 0.0
            bits = larger(bits, fresh[i, k])
            values[u, k] = fresh[i, k]
        if not changed:
            continue
        bound = bound_of(bits)
        grows = bound > bounds[u, SENT]  # else the destinations' bounds are as large already
        bounds[u, SENT] = bound
        begin = segments[u, BEGIN]
        end = begin + segments[u, LENGTH]
        messages += end - begin
        for j in range(begin, end):
            next = pool[min(end - 1, j + AHEAD), OTHER]
            fetch(touched, next + 1)
            fetch_row(state, next)
            v, weight = pool[j, OTHER], np.float64(weight_of(edge_values, pool[j, EDGE]))
            for k in range(width):
                state[v, k] += weight * difference[k]
            if grows:
                take_bound(bounds, v, abs(weight) * bound)
            touch(touched, v, time[i], arrival[i])
    return messages


@lean
def recompute_sums(
    destinations: Ints32, segments: Ints32, pool: Ints32,
    values: Floats, edge_values: Floats, state: Doubles, count: Ints32, bounds: Doubles,
) -> None:  # fmt: skip
    width = state.shape[1]
    for v in destinations:
        begin = segments[v, BEGIN]
        end = begin + segments[v, LENGTH]
        bounds[v, TAKEN] = 0.0
        for k in range(width):
            state[v, k] = 0.0
        for j in range(begin, end):
            u, weight = pool[j, OTHER], np.float64(weight_of(edge_values, pool[j, EDGE]))
            for k in range(width):
                state[v, k] += weight * values[u, k]
            take_bound(bounds, v, abs(weight) * bounds[u, SENT])
        count[v] = end - begin
