"""Aggregates messages that a layer computes per edge, in torch, from source, destination and edge."""

from __future__ import annotations

import numpy as np
import torch

from d3gnn.kernel.adjacency import BEGIN, EDGE, LENGTH, OTHER, Side
from d3gnn.kernel.aggregators.base import EdgeArrays
from d3gnn.kernel.aggregators.recomputing import Recomputing
from d3gnn.kernel.aggregators.reductions import (
    accumulate_reductions,
    finish_reductions,
    merge_reductions,
    reduction_codes,
)
from d3gnn.kernel.compiled import lean
from d3gnn.nn.layer import Layer
from d3gnn.types import Doubles, Floats, Ints, Ints32

#: Messages that are computed at once, unless a single vertex has more in-edges.
_CHUNK = 1 << 16


class PerEdge(Recomputing):
    """Aggregates what a layer's `edge_message` returns by one or several of sum, mean, max and min."""

    merge = staticmethod(merge_reductions)
    finish = staticmethod(finish_reductions)

    def __init__(self, layer: Layer) -> None:
        self.layer, self._codes = layer, reduction_codes(layer.aggr.split(","))
        self.reads_destination = layer.reads_destination

    @property
    def params(self) -> Ints:
        return self._codes

    @property
    def steps_name(self) -> str:
        return "Reductions"

    def state_width(self, message_width: int) -> int:
        return self.layer.aggregate_width

    def recompute(self, destinations: Ints32, arrays: EdgeArrays, into: Side) -> None:
        segments, pool = into
        ends = np.cumsum(segments[destinations, LENGTH], dtype=np.int64)
        begin = 0
        while begin < len(destinations):
            before = int(ends[begin - 1]) if begin else 0
            end = max(begin + 1, int(np.searchsorted(ends, before + _CHUNK, side="right")))
            self._recompute(destinations[begin:end], int(ends[end - 1]) - before, arrays, segments, pool)
            begin = end

    def _recompute(
        self, destinations: Ints32, count: int, arrays: EdgeArrays, segments: Ints32, pool: Ints32
    ) -> None:
        src, dst, slot = (np.empty(count, np.int32) for _ in range(3))
        _gather(destinations, segments, pool, src, dst, slot)
        with torch.inference_mode():
            rows = (arrays.values[src], arrays.values[dst], arrays.edge_values[slot])
            messages: Floats = self.layer.edge_message(*map(torch.from_numpy, rows)).numpy()
        _join(destinations, segments, messages, arrays.state, arrays.counts, self._codes)


@lean
def _gather(
    destinations: Ints32, segments: Ints32, pool: Ints32, src: Ints32, dst: Ints32, slot: Ints32
) -> None:
    at = 0
    for v in destinations:
        begin = segments[v, BEGIN]
        for j in range(begin, begin + segments[v, LENGTH]):
            src[at], dst[at], slot[at] = pool[j, OTHER], v, pool[j, EDGE]
            at += 1


@lean
def _join(
    destinations: Ints32, segments: Ints32, messages: Floats, state: Doubles, counts: Ints32, codes: Ints
) -> None:
    at = 0
    for v in destinations:
        length = segments[v, LENGTH]
        counts[v] = length
        for k in range(state.shape[1]):
            state[v, k] = 0.0
        for j in range(at, at + length):
            accumulate_reductions(j == at, np.float32(1.0), messages[j], state[v], codes)
        at += length
