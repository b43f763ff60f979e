"""HDRF: High-Degree (are) Replicated First (Petroni et al., CIKM 2015)."""

from __future__ import annotations

from dataclasses import dataclass

from d3gnn.kernel.compiled import inlined
from d3gnn.kernel.partitioners.base import (
    DEGREE,
    FIRST_REPLICA,
    NEXT_REPLICA,
    REPLICA_PART,
    Partitioner,
    Placement,
)


@dataclass(frozen=True)
class HDRF(Partitioner):
    r"""Puts an edge where its ends are already, cutting the end of higher degree first.

    .. math:: \text{score}(p) = g(u, p) + g(v, p) + \lambda \frac{max - |p|}{\epsilon + max - min}

    with :math:`g(u, p) = 2 - \frac{d_u}{d_u + d_v}` where p holds u, else 0. Of equal scores the first wins.
    """

    balance: float = 2.0
    epsilon: float = 1.0
    name = "hdrf"
    code = 1

    def __post_init__(self) -> None:
        if self.balance < 0 or self.epsilon <= 0:
            raise ValueError(
                f"HDRF(balance={self.balance}, epsilon={self.epsilon}): at least 0, and above 0, please"
            )

    @property
    def weights(self) -> tuple[float, float]:
        return self.balance, self.epsilon


@inlined
def choose_hdrf(u: int, v: int, placement: Placement, balance: float, epsilon: float) -> int:
    load, score = placement.load, placement.score
    parts = len(load)
    least, most = load[0], load[0]
    for p in range(1, parts):
        least = min(least, load[p])
        most = max(most, load[p])
    scale = balance / (epsilon + (most - least))
    for p in range(parts):
        score[p] = (most - load[p]) * scale
    # Both degrees count the new edge.
    degree_u, degree_v = placement.vertex[u, DEGREE] + 1.0, placement.vertex[v, DEGREE] + 1.0
    share = degree_u / (degree_u + degree_v)
    at = placement.vertex[u, FIRST_REPLICA] - 1
    while at >= 0:
        score[placement.replica[at, REPLICA_PART]] += 2.0 - share
        at = placement.replica[at, NEXT_REPLICA] - 1
    at = placement.vertex[v, FIRST_REPLICA] - 1
    while at >= 0:
        score[placement.replica[at, REPLICA_PART]] += 1.0 + share
        at = placement.replica[at, NEXT_REPLICA] - 1
    best = 0
    for p in range(1, parts):
        if score[p] > score[best]:
            best = p
    return best
