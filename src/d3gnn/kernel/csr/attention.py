r"""Softmax attention over the edges of each row, relative to a given largest logit, and its gradients.

.. math:: s_e = e^{l_e - m_v}, \quad t_v = \sum_e s_e, \quad a_v = \sum_e s_e x_{u(e)}

A row of values holds a message of heads * channels numbers, and then the terms of logits, as
`d3gnn.kernel.aggregators.attention` describes. The largest logit is a constant here: it cancels.
"""

from __future__ import annotations

import numpy as np

from d3gnn.kernel.compiled import inlined, lean
from d3gnn.types import Floats, Ints, Ints32


@inlined
def _leaky(x: float, slope: float) -> float:
    return x if x > 0 else slope * x


@inlined
def _edge_term(edges: Floats, e: int, k: int) -> np.float32:
    return edges[e, k] if edges.shape[1] else np.float32(0.0)


@lean
def logits_of_edges(
    begin: int, end: int, ends: Ints, other: Ints32, edge: Ints32,
    place: Ints32, values: Floats, edges: Floats, scores: Floats, channels: int, slope: float,
    logits: Floats, largest: Floats,
) -> None:  # fmt: skip
    """The logit of each edge and head, and the largest of each row: -1e30 for a row without edges.

    `place[v]` is the row of values of destination v.
    """
    heads = logits.shape[1]
    size = heads * channels
    for v in range(begin, end):
        own = place[v]
        for h in range(heads):
            largest[v, h] = -1e30
        for j in range(ends[v], ends[v + 1]):
            u, e = other[j], edge[j]
            for h in range(heads):
                logit = 0.0
                if len(scores):
                    for c in range(h * channels, (h + 1) * channels):
                        term = values[u, c] + values[own, size + c] + _edge_term(edges, e, c)
                        logit += scores[h, c - h * channels] * _leaky(term, slope)
                else:
                    term = values[u, size + h] + values[own, size + heads + h] + _edge_term(edges, e, h)
                    logit = _leaky(term, slope)
                logits[e, h] = logit
                largest[v, h] = max(largest[v, h], logit)


@lean
def attend(
    begin: int, end: int, ends: Ints, other: Ints32, edge: Ints32,
    values: Floats, shares: Floats, edges: Floats, channels: int, largest: Floats, out: Floats,
) -> None:  # fmt: skip
    """out[v] = the total share of each head, the weighted messages, and the sum of the edges' values.

    `shares` are logits before, and shares after.
    """
    heads = shares.shape[1]
    for v in range(begin, end):
        for k in range(out.shape[1]):
            out[v, k] = 0.0
        for j in range(ends[v], ends[v + 1]):
            u, e = other[j], edge[j]
            for h in range(heads):
                share = np.exp(shares[e, h] - largest[v, h])
                shares[e, h] = share
                out[v, h] += share
                for c in range(h * channels, (h + 1) * channels):
                    out[v, heads + c] += share * values[u, c]
            for k in range(edges.shape[1]):
                out[v, heads * (1 + channels) + k] += edges[e, k]


@lean
def attention_to_edges(
    begin: int, end: int, ends: Ints, other: Ints32, edge: Ints32,
    place: Ints32, values: Floats, shares: Floats, edges: Floats, scores: Floats, channels: int, slope: float,
    grad: Floats, logits: Floats, own: Floats, by_edge: Floats, by_score: Floats,
) -> None:  # fmt: skip
    """Gradients by logit, by the destination's terms (`own`, by row), by the edges' values, and by score.

    `by_score` has a row for each destination, which are added up afterwards; it and `by_edge` are empty if
    they are not needed.
    """
    heads = shares.shape[1]
    size = heads * channels
    for v in range(begin, end):
        here = place[v]
        for k in range(own.shape[1]):
            own[v, k] = 0.0
        for k in range(by_score.shape[1]):
            by_score[v, k] = 0.0
        for j in range(ends[v], ends[v + 1]):
            u, e = other[j], edge[j]
            for k in range(by_edge.shape[1]):
                by_edge[e, k] = grad[v, heads + size + k]
            for h in range(heads):
                total = grad[v, h]
                for c in range(h * channels, (h + 1) * channels):
                    total += grad[v, heads + c] * values[u, c]
                by_logit = total * shares[e, h]
                logits[e, h] = by_logit
                if len(scores):
                    for c in range(h * channels, (h + 1) * channels):
                        term = values[u, c] + values[here, size + c] + _edge_term(edges, e, c)
                        if by_score.shape[1]:
                            by_score[v, c] += by_logit * _leaky(term, slope)
                        by_term = by_logit * scores[h, c - h * channels] * (1.0 if term > 0 else slope)
                        own[v, c] += by_term
                        if by_edge.shape[1]:
                            by_edge[e, c] += by_term
                else:
                    term = values[u, size + h] + values[here, size + heads + h] + _edge_term(edges, e, h)
                    by_term = by_logit * (1.0 if term > 0 else slope)
                    own[v, h] += by_term
                    if by_edge.shape[1]:
                        by_edge[e, h] += by_term


@lean
def attention_to_sources(
    begin: int, end: int, ends: Ints, other: Ints32, edge: Ints32,
    place: Ints32, values: Floats, shares: Floats, edges: Floats, scores: Floats, channels: int, slope: float,
    grad: Floats, logits: Floats, out: Floats,
) -> None:  # fmt: skip
    """Gradients by the sources' messages and terms: the loop goes over the other direction.

    The destinations' terms are added by `add_own`.
    """
    heads = shares.shape[1]
    size = heads * channels
    for u in range(begin, end):
        for k in range(out.shape[1]):
            out[u, k] = 0.0
        for j in range(ends[u], ends[u + 1]):
            v, e = other[j], edge[j]
            here = place[v]
            for h in range(heads):
                share, by_logit = shares[e, h], logits[e, h]
                for c in range(h * channels, (h + 1) * channels):
                    by_message = share * grad[v, heads + c]
                    if len(scores):
                        term = values[u, c] + values[here, size + c] + _edge_term(edges, e, c)
                        by_message += by_logit * scores[h, c - h * channels] * (1.0 if term > 0 else slope)
                    out[u, c] += by_message
                if not len(scores):
                    term = values[u, size + h] + values[here, size + heads + h] + _edge_term(edges, e, h)
                    out[u, size + h] += by_logit * (1.0 if term > 0 else slope)


@lean
def add_own(place: Ints32, own: Floats, first: int, out: Floats) -> None:
    """Add the gradients by the destinations' terms, behind the first columns."""
    for v in range(len(place)):
        for k in range(own.shape[1]):
            out[place[v], first + k] += own[v, k]
