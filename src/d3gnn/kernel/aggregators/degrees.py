"""Degrees: how much comes in at a vertex, for layers that normalise by it."""

from __future__ import annotations

import numpy as np

from d3gnn.kernel.adjacency import BEGIN, EDGE, LENGTH, OTHER, Side
from d3gnn.kernel.aggregators.base import Aggregator, EdgeArrays, Messages, weight_of
from d3gnn.kernel.aggregators.cancellation import TAKEN, take_bound
from d3gnn.kernel.aggregators.linear import copy_total
from d3gnn.kernel.compiled import inlined, lean
from d3gnn.kernel.touched import touch
from d3gnn.nn.layer import DEGREE_WIDTH
from d3gnn.types import Doubles, Floats, Ints, Ints32


@inlined
def merge_degrees(is_first: bool, partial: Floats, total: Doubles, params: Ints) -> None:
    """Sums, and the weight of the heaviest loop."""
    for k in (0, 1, 3):
        total[k] += partial[k]
    total[2] = partial[2] if is_first else max(total[2], partial[2])


class Degrees(Aggregator):
    """The weights of a vertex's in-edges and of its loops, summed; its heaviest loop; how many loops it has.

    Sources send nothing: an edge is its own message.
    """

    name = "degrees"
    invertible = False
    merge = staticmethod(merge_degrees)
    finish = staticmethod(copy_total)

    def state_width(self, message_width: int) -> int:
        return DEGREE_WIDTH

    def sums(self, state_width: int) -> tuple[int, int]:
        return 0, 1  # a vertex that loses a loop is recomputed anyway

    def add(self, edges: Messages, arrays: EdgeArrays, touched: Ints, invalidated: Ints) -> None:
        _add(*edges, *arrays[1:], touched)

    def retract(self, edges: Messages, arrays: EdgeArrays, touched: Ints, invalidated: Ints) -> None:
        _retract(*edges, *arrays[1:], touched, invalidated)

    def replace(
        self, sources: Ints32, fresh: Floats, time: Ints, arrival: Ints, arrays: EdgeArrays, out: Side,
        touched: Ints, invalidated: Ints,
    ) -> int:  # fmt: skip
        return 0

    def recompute(self, destinations: Ints32, arrays: EdgeArrays, into: Side) -> None:
        segments, pool = into
        _recompute(destinations, segments, pool, *arrays[1:])


@inlined
def _take_in(
    u: int, v: int, slot: int, sign: float, edge_values: Floats, state: Doubles, bounds: Doubles
) -> None:
    weight = np.float64(weight_of(edge_values, slot))
    if u != v:
        state[v, 0] += sign * weight
        if edge_values.shape[1]:  # without weights, counts are exact
            take_bound(bounds, v, abs(weight))
        return
    state[v, 1] += sign * weight
    state[v, 3] += sign
    if sign > 0 and weight > state[v, 2]:
        state[v, 2] = weight


@lean
def _add(
    src: Ints32, dst: Ints32, slot: Ints32, time: Ints, arrival: Ints,
    edge_values: Floats, state: Doubles, count: Ints32, bounds: Doubles, touched: Ints,
) -> None:  # fmt: skip
    for i in range(len(src)):
        _take_in(src[i], dst[i], slot[i], 1.0, edge_values, state, bounds)
        count[dst[i]] += 1
        touch(touched, dst[i], time[i], arrival[i])


@lean
def _retract(
    src: Ints32, dst: Ints32, slot: Ints32, time: Ints, arrival: Ints,
    edge_values: Floats, state: Doubles, count: Ints32, bounds: Doubles, touched: Ints, invalidated: Ints,
) -> None:  # fmt: skip
    for i in range(len(src)):
        u, v = src[i], dst[i]
        count[v] -= 1
        touch(touched, v, time[i], arrival[i])
        if count[v] == 0:
            bounds[v, TAKEN] = 0.0
            for k in range(state.shape[1]):
                state[v, k] = 0.0
            continue
        _take_in(u, v, slot[i], -1.0, edge_values, state, bounds)
        if u == v:
            touch(invalidated, v, 0, 0)  # perhaps it was the heaviest


@lean
def _recompute(
    destinations: Ints32, segments: Ints32, pool: Ints32,
    edge_values: Floats, state: Doubles, count: Ints32, bounds: Doubles,
) -> None:  # fmt: skip
    for v in destinations:
        begin = segments[v, BEGIN]
        end = begin + segments[v, LENGTH]
        bounds[v, TAKEN] = 0.0
        for k in range(state.shape[1]):
            state[v, k] = 0.0
        for j in range(begin, end):
            _take_in(pool[j, OTHER], v, pool[j, EDGE], 1.0, edge_values, state, bounds)
        count[v] = end - begin
