"""Aggregators with an extreme, the largest or smallest message, alone or beside others.

An extreme cannot be retracted like a sum. But only the message that holds it can change it: all others are
retracted without a recomputation. A destination that may have lost its extreme is invalidated. NaN is neither
better nor worse than any number, so it is taken for the holder.
"""

from __future__ import annotations

import numpy as np

from d3gnn.kernel.adjacency import BEGIN, EDGE, LENGTH, OTHER, Side
from d3gnn.kernel.aggregators.base import EdgeArrays, Messages, weight_of
from d3gnn.kernel.aggregators.cancellation import SENT, TAKEN, bound_of_row, renew_bounds, take_bound
from d3gnn.kernel.aggregators.recomputing import Recomputing
from d3gnn.kernel.aggregators.reductions import (
    MEAN,
    accumulate_reductions,
    finish_reductions,
    is_better,
    merge_reductions,
    reduction_codes,
)
from d3gnn.kernel.compiled import inlined, lean
from d3gnn.kernel.prefetch import AHEAD, fetch, fetch_row
from d3gnn.kernel.touched import touch
from d3gnn.types import Doubles, Floats, Ints, Ints32


class Mixed(Recomputing):
    """One or several of sum, mean, max and min of the same messages, side by side."""

    accumulate = staticmethod(accumulate_reductions)
    merge = staticmethod(merge_reductions)
    finish = staticmethod(finish_reductions)

    def __init__(self, *names: str) -> None:
        self.names = names or (self.name,)
        self._codes = reduction_codes(self.names)

    @property
    def params(self) -> Ints:
        return self._codes

    @property
    def steps_name(self) -> str:
        return "Reductions"

    def state_width(self, message_width: int) -> int:
        return len(self.names) * message_width

    def sums(self, state_width: int) -> tuple[int, int]:
        # Extremes, too: if they are large, large messages are left.
        return 0, state_width if _has_sums(self._codes) else 0

    def add(self, edges: Messages, arrays: EdgeArrays, touched: Ints, invalidated: Ints) -> None:
        _add(*edges, *arrays, touched, self._codes)

    def retract(self, edges: Messages, arrays: EdgeArrays, touched: Ints, invalidated: Ints) -> None:
        _retract(*edges, *arrays, touched, invalidated, self._codes)

    def replace(
        self, sources: Ints32, fresh: Floats, time: Ints, arrival: Ints, arrays: EdgeArrays, out: Side,
        touched: Ints, invalidated: Ints,
    ) -> int:  # fmt: skip
        values, edge_values, state, _, bounds = arrays
        return _replace(
            sources, fresh, time, arrival, *out, values, edge_values, state, bounds, touched, invalidated,
            self._codes,
        )  # fmt: skip

    def recompute(self, destinations: Ints32, arrays: EdgeArrays, into: Side) -> None:
        super().recompute(destinations, arrays, into)
        if _has_sums(self._codes):
            renew_bounds(destinations, *into, arrays.edge_values, arrays.bounds)


@inlined
def _has_sums(codes: Ints) -> bool:
    for code in codes:  # noqa: SIM110  # compiled
        if code <= MEAN:
            return True
    return False


@lean
def _add(
    src: Ints32, dst: Ints32, slot: Ints32, time: Ints, arrival: Ints,
    values: Floats, edge_values: Floats, state: Doubles, count: Ints32, bounds: Doubles, touched: Ints,
    codes: Ints,
) -> None:  # fmt: skip
    last, has_sums = len(src) - 1, _has_sums(codes)
    for i in range(len(src)):
        next = min(last, i + AHEAD)
        fetch_row(values, src[next])
        fetch_row(state, dst[next])
        u, v, weight = src[i], dst[i], weight_of(edge_values, slot[i])
        accumulate_reductions(count[v] == 0, weight, values[u], state[v], codes)
        if has_sums:
            take_bound(bounds, v, abs(np.float64(weight)) * bounds[u, SENT])
        count[v] += 1
        touch(touched, v, time[i], arrival[i])


@lean
def _retract(
    src: Ints32, dst: Ints32, slot: Ints32, time: Ints, arrival: Ints,
    values: Floats, edge_values: Floats, state: Doubles, count: Ints32, bounds: Doubles, touched: Ints,
    invalidated: Ints, codes: Ints,
) -> None:  # fmt: skip
    width = values.shape[1]
    for i in range(len(src)):
        u, v = src[i], dst[i]
        count[v] -= 1
        touch(touched, v, time[i], arrival[i])
        if count[v] == 0:
            bounds[v, TAKEN] = 0.0
            for k in range(state.shape[1]):
                state[v, k] = 0.0
            continue
        weight, invalid = weight_of(edge_values, slot[i]), False
        for s in range(len(codes)):
            base = s * width
            if codes[s] <= MEAN:
                for k in range(width):
                    state[v, base + k] -= np.float64(weight) * np.float64(values[u, k])
            else:
                for k in range(width):
                    invalid |= not is_better(codes[s], state[v, base + k], weight * values[u, k])
        if invalid:
            touch(invalidated, v, 0, 0)


@lean
def _replace(
    sources: Ints32, fresh: Floats, time: Ints, arrival: Ints, segments: Ints32, pool: Ints32,
    values: Floats, edge_values: Floats, state: Doubles, bounds: Doubles, touched: Ints, invalidated: Ints,
    codes: Ints,
) -> int:  # fmt: skip
    width = values.shape[1]
    messages = 0
    last, has_sums = len(sources) - 1, _has_sums(codes)
    for i in range(len(sources)):
        fetch(segments, sources[min(last, i + 2)])
        u = sources[i]
        changed = False
        for k in range(width):
            changed |= fresh[i, k] != values[u, k]
        if not changed:
            continue
        bound = bound_of_row(fresh, i, 0, width)
        grows = has_sums and bound > bounds[u, SENT]
        bounds[u, SENT] = bound
        begin = segments[u, BEGIN]
        end = begin + segments[u, LENGTH]
        messages += end - begin
        for j in range(begin, end):
            next = pool[min(end - 1, j + AHEAD), OTHER]
            fetch(touched, next + 1)
            fetch_row(state, next)
            v = pool[j, OTHER]
            weight, invalid = weight_of(edge_values, pool[j, EDGE]), False
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
                        if is_better(codes[s], new, held):
                            state[v, base + k] = new
                        elif new != old and not is_better(codes[s], held, old):
                            invalid = True
            if grows:
                take_bound(bounds, v, abs(np.float64(weight)) * bound)
            if invalid:
                touch(invalidated, v, 0, 0)
            touch(touched, v, time[i], arrival[i])
        for k in range(width):
            values[u, k] = fresh[i, k]
    return messages
