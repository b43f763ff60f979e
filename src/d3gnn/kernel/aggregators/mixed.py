"""Aggregators with an extreme among them: the largest or least message, alone or beside others.

An extreme cannot be taken back like a sum. But only the message that holds it can lose it: the others go
without a trace. A destination that may have lost one is a hit, to be recomputed from its in-edges.
"""

from __future__ import annotations

import numpy as np

from d3gnn.kernel.adjacency import BEGIN, EDGE, LENGTH, OTHER, Side
from d3gnn.kernel.aggregators.base import MAX, MEAN, Aggregator, Arrays, Carried, weight_of
from d3gnn.kernel.compiled import inlined, lean
from d3gnn.kernel.prefetch import AHEAD, fetch, fetch_row
from d3gnn.kernel.touched import touch
from d3gnn.types import Doubles, Floats, Ints, Ints32


class Mixed(Aggregator):
    """One or several of sum, mean, max and min, side by side; of the same messages."""

    invertible = False

    def __init__(self, *codes: int) -> None:
        self.codes = np.array(codes or [self.code], np.int64)

    def add(self, edges: Carried, arrays: Arrays, touched: Ints, hits: Ints) -> None:
        _add(*edges, *arrays, touched, self.codes)

    def retract(self, edges: Carried, arrays: Arrays, touched: Ints, hits: Ints) -> None:
        _retract(*edges, *arrays, touched, hits, self.codes)

    def replace(
        self, sources: Ints32, fresh: Floats, time: Ints, arrival: Ints, arrays: Arrays, out: Side,
        touched: Ints, hits: Ints,
    ) -> int:  # fmt: skip
        values, edge_values, state, _ = arrays
        return _replace(
            sources, fresh, time, arrival, *out, values, edge_values, state, touched, hits, self.codes
        )

    def recompute(self, destinations: Ints32, arrays: Arrays, into: Side) -> None:
        segments, pool = into
        _recompute(destinations, segments, pool, *arrays, self.codes)


@inlined
def _is_better(code: int, one: float, other: float) -> bool:
    return one > other if code == MAX else one < other


@inlined
def _take_in(
    u: int, v: int, weight: np.float32, values: Floats, state: Doubles, first: bool, codes: Ints
) -> None:
    width = values.shape[1]
    for s in range(len(codes)):
        base = s * width
        if codes[s] <= MEAN:
            for k in range(width):
                state[v, base + k] += np.float64(weight) * np.float64(values[u, k])
        else:
            for k in range(width):
                message = weight * values[u, k]
                if first or _is_better(codes[s], message, state[v, base + k]):
                    state[v, base + k] = message


@lean
def _add(
    src: Ints32, dst: Ints32, slot: Ints32, time: Ints, arrival: Ints,
    values: Floats, edge_values: Floats, state: Doubles, count: Ints32, touched: Ints, codes: Ints,
) -> None:  # fmt: skip
    last = len(src) - 1
    for i in range(len(src)):
        next = min(last, i + AHEAD)
        fetch_row(values, src[next])
        fetch_row(state, dst[next])
        u, v = src[i], dst[i]
        _take_in(u, v, weight_of(edge_values, slot[i]), values, state, count[v] == 0, codes)
        count[v] += 1
        touch(touched, v, time[i], arrival[i])


@lean
def _retract(
    src: Ints32, dst: Ints32, slot: Ints32, time: Ints, arrival: Ints,
    values: Floats, edge_values: Floats, state: Doubles, count: Ints32, touched: Ints, hits: Ints,
    codes: Ints,
) -> None:  # fmt: skip
    width = values.shape[1]
    for i in range(len(src)):
        u, v = src[i], dst[i]
        count[v] -= 1
        touch(touched, v, time[i], arrival[i])
        if count[v] == 0:
            for k in range(state.shape[1]):
                state[v, k] = 0.0
            continue
        weight, hit = weight_of(edge_values, slot[i]), False
        for s in range(len(codes)):
            base = s * width
            if codes[s] <= MEAN:
                for k in range(width):
                    state[v, base + k] -= np.float64(weight) * np.float64(values[u, k])
            else:
                for k in range(width):
                    hit |= weight * values[u, k] == state[v, base + k]
        if hit:
            touch(hits, v, 0, 0)


@lean
def _replace(
    sources: Ints32, fresh: Floats, time: Ints, arrival: Ints, segments: Ints32, pool: Ints32,
    values: Floats, edge_values: Floats, state: Doubles, touched: Ints, hits: Ints, codes: Ints,
) -> int:  # fmt: skip
    width = values.shape[1]
    messages = 0
    last = len(sources) - 1
    for i in range(len(sources)):
        fetch(segments, sources[min(last, i + 2)])
        u = sources[i]
        changed = False
        for k in range(width):
            changed |= fresh[i, k] != values[u, k]
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
            weight, hit = weight_of(edge_values, pool[j, EDGE]), False
            for s in range(len(codes)):
                base = s * width
                if codes[s] <= MEAN:
                    for k in range(width):
                        difference = np.float64(fresh[i, k]) - np.float64(values[u, k])
                        state[v, base + k] += np.float64(weight) * difference
                else:
                    for k in range(width):
                        old, new = weight * values[u, k], weight * fresh[i, k]
                        held = state[v, base + k]
                        if _is_better(codes[s], new, held):
                            state[v, base + k] = new
                        elif old == held and new != old:
                            hit = True
            if hit:
                touch(hits, v, 0, 0)
            touch(touched, v, time[i], arrival[i])
        for k in range(width):
            values[u, k] = fresh[i, k]
    return messages


@lean
def _recompute(
    destinations: Ints32, segments: Ints32, pool: Ints32,
    values: Floats, edge_values: Floats, state: Doubles, count: Ints32, codes: Ints,
) -> None:  # fmt: skip
    for v in destinations:
        begin = segments[v, BEGIN]
        end = begin + segments[v, LENGTH]
        for k in range(state.shape[1]):
            state[v, k] = 0.0
        for j in range(begin, end):
            fetch_row(values, pool[min(end - 1, j + AHEAD), OTHER])
            _take_in(
                pool[j, OTHER], v, weight_of(edge_values, pool[j, EDGE]), values, state, j == begin, codes
            )
        count[v] = end - begin
