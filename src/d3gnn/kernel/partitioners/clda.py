"""CLDA: HDRF for edges of high degree, greedy for the others (Rad and Azmi, 2017)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from d3gnn.kernel.compiled import inlined
from d3gnn.kernel.partitioners.base import (
    DEGREE,
    FIRST_REPLICA,
    NEXT_REPLICA,
    REPLICA_PART,
    VERTEX_COUNT,
    Partitioner,
    Placement,
    Settings,
)
from d3gnn.kernel.partitioners.hdrf import HDRF

_hdrf = HDRF.choose


@dataclass(frozen=True)
class CLDA(Partitioner):
    r"""Looks at locality alone where both ends are of low degree, and at balance, too, where one is not.

    With :math:`d_u + d_v` up to the mean degree of the graph so far, the part that holds most of the two ends
    is chosen; else the part that :class:`HDRF` chooses. The paper (section 4.4) names neither; its
    implementation does it in this way. Of equal parts, the one with the fewest edges wins.

    balance:
        The weight of balance against replication, in HDRF.
    epsilon:
        As in HDRF, above 0.
    """

    balance: float = 2.0
    epsilon: float = 1.0
    name = "clda"

    def __post_init__(self) -> None:
        HDRF(self.balance, self.epsilon)  # the same limits

    @staticmethod
    @inlined
    def choose(
        u: int, v: int, hash_u: np.uint64, hash_v: np.uint64, placement: Placement, settings: Settings
    ) -> int:
        load, score, vertex = placement.load, placement.score, placement.vertex
        edges = 1
        for count in load:
            edges += count
        # Degrees include the new edge.
        degree = vertex[u, DEGREE] + vertex[v, DEGREE] + 2
        if degree * placement.totals[VERTEX_COUNT] > 2 * edges:
            return int(np.int64(_hdrf(u, v, hash_u, hash_v, placement, settings)))
        score[:] = 0.0
        at = vertex[u, FIRST_REPLICA] - 1
        while at >= 0:
            score[placement.replica[at, REPLICA_PART]] += 1.0
            at = placement.replica[at, NEXT_REPLICA] - 1
        at = vertex[v, FIRST_REPLICA] - 1
        while at >= 0:
            score[placement.replica[at, REPLICA_PART]] += 1.0
            at = placement.replica[at, NEXT_REPLICA] - 1
        best = 0
        for p in range(1, len(load)):
            if score[p] > score[best] or (score[p] == score[best] and load[p] < load[best]):
                best = p
        return best
