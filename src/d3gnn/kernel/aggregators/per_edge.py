"""Messages that a layer makes for each edge by itself, of source, destination and edge, in torch.

Nothing is taken back: a destination into which any message has changed is recomputed from its in-edges, all
such destinations of a batch at once. It costs what comes in there, not what has changed.
"""

from __future__ import annotations

import numpy as np
import torch

from d3gnn.kernel.adjacency import BEGIN, EDGE, LENGTH, OTHER, Side
from d3gnn.kernel.aggregators.base import MAX, MEAN, Aggregator, Arrays, Carried
from d3gnn.kernel.compiled import lean
from d3gnn.kernel.touched import touch
from d3gnn.nn.layer import Layer
from d3gnn.types import Doubles, Floats, Ints, Ints32

#: Messages that are made at once, unless more come in at a single vertex.
_CHUNK = 1 << 16


class PerEdge(Aggregator):
    """What a layer's `edge_message` makes, joined by one or several of sum, mean, max and min."""

    invertible = False

    def __init__(self, layer: Layer, *codes: int) -> None:
        self.layer, self.codes = layer, np.array(codes, np.int64)

    def state_width(self, message_width: int) -> int:
        return self.layer.aggregate_width

    def add(self, edges: Carried, arrays: Arrays, touched: Ints, hits: Ints) -> None:
        _hit(edges.dst, edges.time, edges.arrival, touched, hits)

    def retract(self, edges: Carried, arrays: Arrays, touched: Ints, hits: Ints) -> None:
        _hit(edges.dst, edges.time, edges.arrival, touched, hits)

    def replace(
        self, sources: Ints32, fresh: Floats, time: Ints, arrival: Ints, arrays: Arrays, out: Side,
        touched: Ints, hits: Ints,
    ) -> int:  # fmt: skip
        segments, pool = out
        own = self.layer.reads_destination
        return _replace(
            sources, fresh, time, arrival, segments, pool, arrays.values, arrays.counts, own, touched, hits
        )

    def recompute(self, destinations: Ints32, arrays: Arrays, into: Side) -> None:
        segments, pool = into
        ends = np.cumsum(segments[destinations, LENGTH], dtype=np.int64)
        begin = 0
        while begin < len(destinations):
            before = int(ends[begin - 1]) if begin else 0
            end = max(begin + 1, int(np.searchsorted(ends, before + _CHUNK, side="right")))
            self._recompute(destinations[begin:end], int(ends[end - 1]) - before, arrays, segments, pool)
            begin = end

    def _recompute(
        self, destinations: Ints32, count: int, arrays: Arrays, segments: Ints32, pool: Ints32
    ) -> None:
        src, dst, slot = (np.empty(count, np.int32) for _ in range(3))
        _gather(destinations, segments, pool, src, dst, slot)
        with torch.inference_mode():
            rows = (arrays.values[src], arrays.values[dst], arrays.edge_values[slot])
            messages: Floats = self.layer.edge_message(*map(torch.from_numpy, rows)).numpy()
        _join(destinations, segments, messages, arrays.state, arrays.counts, self.codes)


@lean
def _hit(dst: Ints32, time: Ints, arrival: Ints, touched: Ints, hits: Ints) -> None:
    for i in range(len(dst)):
        touch(touched, dst[i], time[i], arrival[i])
        touch(hits, dst[i], 0, 0)


@lean
def _replace(
    sources: Ints32, fresh: Floats, time: Ints, arrival: Ints, segments: Ints32, pool: Ints32,
    values: Floats, counts: Ints32, own: bool, touched: Ints, hits: Ints,
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
            touch(hits, pool[j, OTHER], 0, 0)
        if own and counts[u] > 0:
            messages += counts[u]
            touch(touched, u, time[i], arrival[i])
            touch(hits, u, 0, 0)
    return messages


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
    width = messages.shape[1]
    at = 0
    for v in destinations:
        length = segments[v, LENGTH]
        counts[v] = length
        for k in range(state.shape[1]):
            state[v, k] = 0.0
        for j in range(at, at + length):
            for s in range(len(codes)):
                base = s * width
                for k in range(width):
                    message = np.float64(messages[j, k])
                    if codes[s] <= MEAN:
                        state[v, base + k] += message
                    else:
                        held = state[v, base + k]
                        better = message > held if codes[s] == MAX else message < held
                        if j == at or better:
                            state[v, base + k] = message
        at += length
