r"""Sums of messages, :math:`a_v = \sum_e w_e x_{u(e)}`, and their gradients.

The gradient with respect to x is the same sum in the other direction, that with respect to a weight is
:math:`\partial w_e = x_{u(e)} \cdot \partial a_{v(e)}`.
"""

from __future__ import annotations

from d3gnn.kernel.compiled import lean
from d3gnn.kernel.prefetch import AHEAD, fetch_row
from d3gnn.types import Floats, Ints, Ints32


@lean
def sum_rows(
    begin: int, end: int, ends: Ints, other: Ints32, edge: Ints32, weight: Floats, values: Floats, out: Floats
) -> None:
    """out[v] = the sum over the edges of v; `weight` is empty if all are 1."""
    width, last = values.shape[1], len(other) - 1
    for v in range(begin, end):
        for k in range(width):
            out[v, k] = 0.0
        for j in range(ends[v], ends[v + 1]):
            fetch_row(values, other[min(last, j + AHEAD)])
            u = other[j]
            if len(weight):
                w = weight[edge[j]]
                for k in range(width):
                    out[v, k] += w * values[u, k]
            else:
                for k in range(width):
                    out[v, k] += values[u, k]


@lean
def dot_edges(
    begin: int, end: int, ends: Ints, other: Ints32, edge: Ints32, values: Floats, grad: Floats, out: Floats
) -> None:
    """out[e] = the product of the rows at both ends of each edge; `grad` is by row of the loop."""
    for v in range(begin, end):
        for j in range(ends[v], ends[v + 1]):
            u, total = other[j], 0.0
            for k in range(values.shape[1]):
                total += values[u, k] * grad[v, k]
            out[edge[j]] = total
