"""Aggregators that recompute: when a message changes, the destination is aggregated from all its in-edges.

The destinations of a batch are recomputed together. It costs their in-edges, not the changed messages, so an
aggregator that can retract messages should do that instead. A new aggregator of this kind is five lines.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from d3gnn.kernel.adjacency import BEGIN, EDGE, LENGTH, OTHER, Side
from d3gnn.kernel.aggregators.base import Aggregator, EdgeArrays, Messages, weight_of
from d3gnn.kernel.compiled import inlined, lean, specialised
from d3gnn.kernel.prefetch import AHEAD, fetch_row
from d3gnn.kernel.touched import touch
from d3gnn.types import Doubles, Floats, Ints, Ints32


@inlined
def accumulate(is_first: bool, weight: np.float32, message: Floats, total: Doubles, params: Ints) -> None:
    """Placeholder for the step of a subclass."""


class Recomputing(Aggregator):
    """Base class: a subclass defines `accumulate`, `merge` and `finish`, compiled with `inlined`.

    `accumulate(is_first, weight, message, total, params)` adds one message, of an edge with this weight, to
    the state `total`, which is all zero before the first.
    """

    invertible = False
    accumulate: ClassVar[Any] = staticmethod(accumulate)
    #: Whether messages depend on their destination, so that a change of the destination invalidates it.
    reads_destination = False

    def sums(self, state_width: int) -> tuple[int, int]:
        return 0, 0  # nothing is taken out of a state

    def add(self, edges: Messages, arrays: EdgeArrays, touched: Ints, invalidated: Ints) -> None:
        _invalidate(edges.dst, edges.time, edges.arrival, touched, invalidated)

    def retract(self, edges: Messages, arrays: EdgeArrays, touched: Ints, invalidated: Ints) -> None:
        _invalidate(edges.dst, edges.time, edges.arrival, touched, invalidated)

    def replace(
        self, sources: Ints32, fresh: Floats, time: Ints, arrival: Ints, arrays: EdgeArrays, out: Side,
        touched: Ints, invalidated: Ints,
    ) -> int:  # fmt: skip
        values, counts, reads = arrays.values, arrays.counts, self.reads_destination
        return _replace(sources, fresh, time, arrival, *out, values, counts, reads, touched, invalidated)

    def recompute(self, destinations: Ints32, arrays: EdgeArrays, into: Side) -> None:
        loop = specialised(_recompute, self.steps_name, accumulate=type(self).accumulate)
        values, edge_values, state, counts, _ = arrays
        loop(destinations, *into, values, edge_values, state, counts, self.params)


@lean
def _invalidate(dst: Ints32, time: Ints, arrival: Ints, touched: Ints, invalidated: Ints) -> None:
    for i in range(len(dst)):
        touch(touched, dst[i], time[i], arrival[i])
        touch(invalidated, dst[i], 0, 0)


@lean
def _replace(
    sources: Ints32, fresh: Floats, time: Ints, arrival: Ints, segments: Ints32, pool: Ints32,
    values: Floats, counts: Ints32, own: bool, touched: Ints, invalidated: Ints,
) -> int:  # fmt: skip
    messages = 0
    for i in range(len(sources)):
        u = sources[i]
        changed = False
        for k in range(values.shape[1]):
            changed |= fresh[i, k] != values[u, k]
            values[u, k] = fresh[i, k]
        if not changed:
            continue
        begin = segments[u, BEGIN]
        end = begin + segments[u, LENGTH]
        messages += end - begin
        for j in range(begin, end):
            touch(touched, pool[j, OTHER], time[i], arrival[i])
            touch(invalidated, pool[j, OTHER], 0, 0)
        if own and counts[u] > 0:
            messages += counts[u]
            touch(touched, u, time[i], arrival[i])
            touch(invalidated, u, 0, 0)
    return messages


@lean
def _recompute(
    destinations: Ints32, segments: Ints32, pool: Ints32,
    values: Floats, edge_values: Floats, state: Doubles, count: Ints32, params: Ints,
) -> None:  # fmt: skip
    for v in destinations:
        begin = segments[v, BEGIN]
        end = begin + segments[v, LENGTH]
        for k in range(state.shape[1]):
            state[v, k] = 0.0
        for j in range(begin, end):
            fetch_row(values, pool[min(end - 1, j + AHEAD), OTHER])
            weight = weight_of(edge_values, pool[j, EDGE])
            accumulate(j == begin, weight, values[pool[j, OTHER]], state[v], params)
        count[v] = end - begin
