"""HDRF: High-Degree (are) Replicated First (Petroni et al., CIKM 2015)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from d3gnn.kernel.compiled import inlined
from d3gnn.kernel.partitioners.base import (
    DEGREE,
    FIRST_REPLICA,
    NEXT_REPLICA,
    REPLICA_PART,
    Partitioner,
    Placement,
    Settings,
)


@dataclass(frozen=True)
class HDRF(Partitioner):
    r"""Prefers parts that hold the ends of an edge already, and replicates the end of higher degree.

    .. math:: \text{score}(p) = g(u, p) + g(v, p) + \lambda \frac{max - |p|}{\epsilon + max - min}

    with :math:`g(u, p) = 2 - \frac{d_u}{d_u + d_v}` if p holds u, else 0. The first of equal scores wins.

    balance:
        :math:`\lambda`, the weight of balance against replication.
    epsilon:
        :math:`\epsilon`, above 0.
    """

    balance: float = 2.0
    epsilon: float = 1.0
    name = "hdrf"

    def __post_init__(self) -> None:
        if self.balance < 0 or self.epsilon <= 0:
            raise ValueError(
                f"HDRF(balance={self.balance}, epsilon={self.epsilon}): balance must be at least 0, epsilon "
                "above 0"
            )

    @staticmethod
    @inlined
    def choose(
        u: int, v: int, hash_u: np.uint64, hash_v: np.uint64, placement: Placement, settings: Settings
    ) -> int:
        balance, epsilon = settings
        load, score = placement.load, placement.score
        parts = len(load)
        least, most = load[0], load[0]
        for p in range(1, parts):
            least = min(least, load[p])
            most = max(most, load[p])
        scale = balance / (epsilon + (most - least))
        for p in range(parts):
            score[p] = (most - load[p]) * scale
        # Degrees include the new edge.
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
