r"""Softmax attention: messages are joined by weights that depend on source, destination and edge.

.. math:: a_v = \sum_u \frac{e^{l_{uv}}}{\sum_w e^{l_{wv}}} x_u

State of a destination, for each head: the largest logit m, the sum of e^(l - m), the sum of e^(l - m) x, and
the sum of its edges' values. A message is taken in and taken back like one of a sum, as long as it does not
hold the largest logit; a destination that loses that, or changes itself, is recomputed. The message with the
largest logit counts 1 in the sum of exponentials, so that what was taken back leaves no trace there; the
other sums have a bound (see `cancellation`).
"""

from __future__ import annotations

import numpy as np

from d3gnn.kernel.adjacency import BEGIN, EDGE, LENGTH, OTHER, Side
from d3gnn.kernel.aggregators.base import Aggregator, EdgeArrays, Messages
from d3gnn.kernel.aggregators.cancellation import SENT, TAKEN, bound_of_row, take_bound
from d3gnn.kernel.compiled import inlined, lean
from d3gnn.kernel.prefetch import AHEAD, fetch_row
from d3gnn.kernel.touched import is_in, touch
from d3gnn.nn.layer import AttentionSpec, Layer
from d3gnn.types import Doubles, Floats, Ints, Ints32

#: The largest logit of a destination without messages: any other is larger.
NO_LOGIT = -1e30


@inlined
def merge_heads(is_first: bool, partial: Floats, total: Doubles, params: Ints) -> None:
    """Merge the sums of two parts, each relative to its own largest logit."""
    heads, channels = params[0], params[1]
    if is_first:
        for k in range(len(total)):
            total[k] = partial[k]
        return
    for h in range(heads):
        _merge_head(h, heads, channels, partial, total)
    for k in range(heads * (2 + channels), len(total)):
        total[k] += partial[k]


@inlined
def _merge_head(h: int, heads: int, channels: int, partial: Floats, total: Doubles) -> None:
    begin = 2 * heads + h * channels
    before, more = 1.0, 1.0
    if partial[h] > total[h]:
        before = np.exp(total[h] - partial[h])
        total[h] = partial[h]
    else:
        more = np.exp(partial[h] - total[h])
    total[heads + h] = before * total[heads + h] + more * partial[heads + h]
    for c in range(begin, begin + channels):
        total[c] = before * total[c] + more * partial[c]


@inlined
def finish_heads(count: int, total: Doubles, params: Ints, aggregate: Floats) -> None:
    """The sums as they are; the values of edges become their mean."""
    heads, channels = params[0], params[1]
    edges = heads * (2 + channels)
    for k in range(edges):
        aggregate[k] = NO_LOGIT if count == 0 and k < heads else total[k]
    for k in range(edges, len(total)):
        aggregate[k] = total[k] / max(1, count)


class Attention(Aggregator):
    """Softmax attention over several heads, as a layer's `AttentionSpec` says.

    A row of values holds what a source is joined by, head after head, and then the terms of logits. Without
    `scores` these are numbers for each head, first that of a source, then that of a destination. With them,
    a logit is the product of `scores` with all of what a source and what a destination sends, added up.
    """

    name = "attention"
    invertible = False
    merge = staticmethod(merge_heads)
    finish = staticmethod(finish_heads)

    def __init__(self, spec: AttentionSpec | None = None, edge_width: int = 0) -> None:
        self.spec, self.edge_width = spec or AttentionSpec(1, 1), edge_width
        scores = self.spec.scores
        self._scores = np.zeros((0, 0), np.float32) if scores is None else scores.detach().numpy().copy()
        self._shape = np.array([self.spec.heads, self.spec.channels], np.int64)
        self._logits = (self.spec.heads, self.spec.channels, float(self.spec.slope), self._scores)

    @classmethod
    def of(cls, layer: Layer) -> Aggregator:
        return cls(layer.attention, layer.edge_width)

    @property
    def params(self) -> Ints:
        return self._shape

    def state_width(self, message_width: int) -> int:
        return self.spec.heads * (2 + self.spec.channels) + self.edge_width

    def sums(self, state_width: int) -> tuple[int, int]:
        return 2 * self.spec.heads, state_width

    def add(self, edges: Messages, arrays: EdgeArrays, touched: Ints, invalidated: Ints) -> None:
        heads, channels, slope, scores = self._logits
        _add(*edges, *arrays, touched, heads, channels, slope, scores)

    def retract(self, edges: Messages, arrays: EdgeArrays, touched: Ints, invalidated: Ints) -> None:
        heads, channels, slope, scores = self._logits
        _retract(*edges, *arrays, touched, invalidated, heads, channels, slope, scores)

    def replace(
        self, sources: Ints32, fresh: Floats, time: Ints, arrival: Ints, arrays: EdgeArrays, out: Side,
        touched: Ints, invalidated: Ints,
    ) -> int:  # fmt: skip
        segments, pool = out
        heads, channels, slope, scores = self._logits
        return _replace(
            sources,
            fresh,
            time,
            arrival,
            segments,
            pool,
            *arrays,
            touched,
            invalidated,
            heads,
            channels,
            slope,
            scores,
        )

    def recompute(self, destinations: Ints32, arrays: EdgeArrays, into: Side) -> None:
        segments, pool = into
        heads, channels, slope, scores = self._logits
        _recompute(destinations, segments, pool, *arrays, heads, channels, slope, scores)


@inlined
def _leaky(x: float, slope: float) -> float:
    return x if x > 0 else slope * x


@inlined
def _logit(
    sources: Floats, u: int, values: Floats, v: int, edge_values: Floats, slot: int, h: int,
    heads: int, channels: int, slope: float, scores: Floats,
) -> float:  # fmt: skip
    """Of head h on the edge from row u of `sources` to v."""
    joined = heads * channels
    if not len(scores):
        plain = np.float64(sources[u, joined + h]) + np.float64(values[v, joined + heads + h])
        if edge_values.shape[1]:
            plain += edge_values[slot, h]
        return _leaky(plain, slope)
    begin, end = h * channels, (h + 1) * channels
    edge = edge_values[slot, begin:end] if edge_values.shape[1] else edge_values[0:0, 0]
    return _scored(sources[u, begin:end], values[v, joined + begin : joined + end], edge, scores[h], slope)


@inlined
def _scored(theirs: Floats, own: Floats, edge: Floats, scores: Floats, slope: float) -> float:
    """The product of scores and terms, as four sums: one alone would wait for each addition to end."""
    one, two, three, four = 0.0, 0.0, 0.0, 0.0
    whole = len(scores) // 4 * 4
    for c in range(0, whole, 4):
        one += _score(c, theirs, own, edge, scores, slope)
        two += _score(c + 1, theirs, own, edge, scores, slope)
        three += _score(c + 2, theirs, own, edge, scores, slope)
        four += _score(c + 3, theirs, own, edge, scores, slope)
    for c in range(whole, len(scores)):
        one += _score(c, theirs, own, edge, scores, slope)
    return (one + two) + (three + four)


@inlined
def _score(c: int, theirs: Floats, own: Floats, edge: Floats, scores: Floats, slope: float) -> float:
    term = np.float64(theirs[c]) + np.float64(own[c])
    if len(edge):
        term += edge[c]
    return np.float64(scores[c]) * _leaky(term, slope)


@inlined
def _take_in_head(
    logit: float, first: bool, sources: Floats, u: int, v: int, state: Doubles, h: int, heads: int,
    channels: int,
) -> float:  # fmt: skip
    """Returns the share of the message."""
    begin = 2 * heads + h * channels
    total, message = state[v, begin : begin + channels], sources[u, h * channels : (h + 1) * channels]
    if first or logit > state[v, h]:
        scale = 0.0 if first else np.exp(state[v, h] - logit)
        state[v, h], state[v, heads + h] = logit, scale * state[v, heads + h] + 1.0
        for c in range(channels):
            total[c] = scale * total[c] + message[c]
        return 1.0
    share = np.exp(logit - state[v, h])
    state[v, heads + h] += share
    for c in range(channels):
        total[c] += share * message[c]
    return share  # type: ignore[no-any-return]


@inlined
def _take_back_head(
    logit: float, sources: Floats, u: int, v: int, state: Doubles, h: int, heads: int, channels: int
) -> None:
    begin = 2 * heads + h * channels
    total, message = state[v, begin : begin + channels], sources[u, h * channels : (h + 1) * channels]
    share = np.exp(logit - state[v, h])
    state[v, heads + h] -= share
    for c in range(channels):
        total[c] -= share * message[c]


@inlined
def _add_edge_values(
    sign: float, v: int, slot: int, edge_values: Floats, state: Doubles, heads: int, channels: int
) -> None:
    begin = heads * (2 + channels)
    for k in range(edge_values.shape[1]):
        state[v, begin + k] += sign * edge_values[slot, k]


@inlined
def _take_in(
    u: int, v: int, slot: int, first: bool, values: Floats, edge_values: Floats, state: Doubles,
    bounds: Doubles, heads: int, channels: int, slope: float, scores: Floats,
) -> None:  # fmt: skip
    for h in range(heads):
        logit = _logit(values, u, values, v, edge_values, slot, h, heads, channels, slope, scores)
        share = _take_in_head(logit, first, values, u, v, state, h, heads, channels)
        take_bound(bounds, v, share * bounds[u, SENT])
    _add_edge_values(1.0, v, slot, edge_values, state, heads, channels)
    take_bound(bounds, v, bound_of_row(edge_values, slot, 0, edge_values.shape[1]))


@lean
def _add(
    src: Ints32, dst: Ints32, slot: Ints32, time: Ints, arrival: Ints,
    values: Floats, edge_values: Floats, state: Doubles, count: Ints32, bounds: Doubles, touched: Ints,
    heads: int, channels: int, slope: float, scores: Floats,
) -> None:  # fmt: skip
    last = len(src) - 1
    for i in range(len(src)):
        fetch_row(values, src[min(last, i + AHEAD)])
        fetch_row(state, dst[min(last, i + AHEAD)])
        u, v = src[i], dst[i]
        _take_in(
            u, v, slot[i], count[v] == 0, values, edge_values, state, bounds, heads, channels, slope, scores
        )
        count[v] += 1
        touch(touched, v, time[i], arrival[i])


@lean
def _retract(
    src: Ints32, dst: Ints32, slot: Ints32, time: Ints, arrival: Ints,
    values: Floats, edge_values: Floats, state: Doubles, count: Ints32, bounds: Doubles, touched: Ints,
    invalidated: Ints, heads: int, channels: int, slope: float, scores: Floats,
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
        if is_in(invalidated, v):
            continue
        for h in range(heads):
            logit = _logit(values, u, values, v, edge_values, slot[i], h, heads, channels, slope, scores)
            if logit >= state[v, h]:
                touch(invalidated, v, 0, 0)
                break
            _take_back_head(logit, values, u, v, state, h, heads, channels)
        _add_edge_values(-1.0, v, slot[i], edge_values, state, heads, channels)


@lean
def _replace(
    sources: Ints32, fresh: Floats, time: Ints, arrival: Ints, segments: Ints32, pool: Ints32,
    values: Floats, edge_values: Floats, state: Doubles, count: Ints32, bounds: Doubles, touched: Ints,
    invalidated: Ints, heads: int, channels: int, slope: float, scores: Floats,
) -> int:  # fmt: skip
    width = values.shape[1]
    # From here on a row says what a vertex is as a destination.
    own = heads * channels if len(scores) else heads * channels + heads
    messages = 0
    for i in range(len(sources)):
        u = sources[i]
        as_source, as_destination = False, False
        for k in range(own):
            as_source |= fresh[i, k] != values[u, k]
        for k in range(own, width):
            as_destination |= fresh[i, k] != values[u, k]
        if as_destination and count[u] > 0:
            messages += count[u]
            touch(touched, u, time[i], arrival[i])
            touch(invalidated, u, 0, 0)
        if as_source:
            begin = segments[u, BEGIN]
            end = begin + segments[u, LENGTH]
            messages += end - begin
            bound = bounds[u, SENT] = bound_of_row(fresh, i, 0, heads * channels)
            for j in range(begin, end):
                fetch_row(state, pool[min(end - 1, j + AHEAD), OTHER])
                v, slot = pool[j, OTHER], pool[j, EDGE]
                touch(touched, v, time[i], arrival[i])
                if is_in(invalidated, v):
                    continue
                for h in range(heads):
                    old = _logit(values, u, values, v, edge_values, slot, h, heads, channels, slope, scores)
                    new = _logit(fresh, i, values, v, edge_values, slot, h, heads, channels, slope, scores)
                    if old >= state[v, h] and new < old:
                        touch(invalidated, v, 0, 0)
                        break
                    _take_back_head(old, values, u, v, state, h, heads, channels)
                    share = _take_in_head(new, False, fresh, i, v, state, h, heads, channels)
                    take_bound(bounds, v, share * bound)
        for k in range(width):
            values[u, k] = fresh[i, k]
    return messages


@lean
def _recompute(
    destinations: Ints32, segments: Ints32, pool: Ints32,
    values: Floats, edge_values: Floats, state: Doubles, count: Ints32, bounds: Doubles,
    heads: int, channels: int, slope: float, scores: Floats,
) -> None:  # fmt: skip
    for v in destinations:
        begin = segments[v, BEGIN]
        end = begin + segments[v, LENGTH]
        bounds[v, TAKEN] = 0.0
        for k in range(state.shape[1]):
            state[v, k] = 0.0
        for j in range(begin, end):
            fetch_row(values, pool[min(end - 1, j + AHEAD), OTHER])
            _take_in(
                pool[j, OTHER], v, pool[j, EDGE], j == begin, values, edge_values, state, bounds,
                heads, channels, slope, scores,
            )  # fmt: skip
        count[v] = end - begin
