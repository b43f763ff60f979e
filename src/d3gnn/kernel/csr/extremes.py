r"""The largest message of each row, number by number, and gradients that ties share.

With :math:`t_v` messages that equal the largest one :math:`b_v`, it is :math:`\sum_e [m_e = b_v] m_e / t_v`:
a sum, so that parts of a row add up, and each tie receives the same share of the gradient. `sign` is 1 for
the largest and -1 for the smallest message.
"""

from __future__ import annotations

import numpy as np

from d3gnn.kernel.compiled import inlined, lean
from d3gnn.types import Floats, Ints, Ints32


@inlined
def _message(weight: Floats, edge: int, value: np.float32) -> np.float32:
    return weight[edge] * value if len(weight) else value


@lean
def best_rows(
    begin: int, end: int, ends: Ints, other: Ints32, edge: Ints32,
    weight: Floats, values: Floats, sign: np.float32, out: Floats,
) -> None:  # fmt: skip
    """out[v] = sign times the best message; -inf for a row without edges."""
    width = values.shape[1]
    for v in range(begin, end):
        for k in range(width):
            out[v, k] = -np.inf
        for j in range(ends[v], ends[v + 1]):
            u = other[j]
            for k in range(width):
                message = sign * _message(weight, edge[j], values[u, k])
                if message > out[v, k]:
                    out[v, k] = message


@lean
def count_ties(
    begin: int, end: int, ends: Ints, other: Ints32, edge: Ints32,
    weight: Floats, values: Floats, sign: np.float32, best: Floats, out: Floats,
) -> None:  # fmt: skip
    """out[v] = how many messages equal the best one."""
    width = values.shape[1]
    for v in range(begin, end):
        for k in range(width):
            out[v, k] = 0.0
        for j in range(ends[v], ends[v + 1]):
            u = other[j]
            for k in range(width):
                if sign * _message(weight, edge[j], values[u, k]) == best[v, k]:
                    out[v, k] += 1.0


@lean
def sum_ties(
    begin: int, end: int, ends: Ints, other: Ints32, edge: Ints32,
    weight: Floats, values: Floats, sign: np.float32, best: Floats, share: Floats, out: Floats,
) -> None:  # fmt: skip
    """out[v] = the sum of the messages that equal the best one, times `share[v]`."""
    width = values.shape[1]
    for v in range(begin, end):
        for k in range(width):
            out[v, k] = 0.0
        for j in range(ends[v], ends[v + 1]):
            u = other[j]
            for k in range(width):
                message = _message(weight, edge[j], values[u, k])
                if sign * message == best[v, k]:
                    out[v, k] += message * share[v, k]


@lean
def ties_to_values(
    begin: int, end: int, ends: Ints, other: Ints32, edge: Ints32,
    weight: Floats, values: Floats, sign: np.float32, best: Floats, grad: Floats, out: Floats,
) -> None:  # fmt: skip
    """The gradient of `sum_ties` by source: the loop goes over the other direction.

    `grad` is that of the destinations, times their share.
    """
    width = values.shape[1]
    for u in range(begin, end):
        for k in range(width):
            out[u, k] = 0.0
        for j in range(ends[u], ends[u + 1]):
            v = other[j]
            for k in range(width):
                if sign * _message(weight, edge[j], values[u, k]) == best[v, k]:
                    out[u, k] += _message(weight, edge[j], grad[v, k])


@lean
def ties_to_weights(
    begin: int, end: int, ends: Ints, other: Ints32, edge: Ints32,
    weight: Floats, values: Floats, sign: np.float32, best: Floats, grad: Floats, out: Floats,
) -> None:  # fmt: skip
    """The gradient of `sum_ties` by edge."""
    for v in range(begin, end):
        for j in range(ends[v], ends[v + 1]):
            u, total = other[j], 0.0
            for k in range(values.shape[1]):
                if sign * _message(weight, edge[j], values[u, k]) == best[v, k]:
                    total += values[u, k] * grad[v, k]
            out[edge[j]] = total
