"""Fennel, for streams of vertices with their neighbourhoods (Tsourakakis et al., WSDM 2014)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from d3gnn.kernel.compiled import inlined
from d3gnn.kernel.partitioners.base import (
    FIRST_REPLICA,
    MASTER_PART,
    VERTEX_COUNT,
    Partitioner,
    Placement,
    Settings,
)
from d3gnn.kernel.partitioners.ends import part_of_an_end


@dataclass(frozen=True)
class Fennel(Partitioner):
    r"""Places each vertex where it has most neighbours, weighed against the vertices that are there.

    .. math:: \text{score}(p) = |N(v) \cap p| - \alpha \gamma |p|^{\gamma - 1},
        \quad \alpha = \sqrt{k} \frac{m}{n^\gamma}

    for k parts, with the m edges and n vertices so far. An edge goes to the part of one of its ends. A vertex
    event with `neighbours` shows it a whole neighbourhood at once; in a stream of edges, it sees that of the
    vertex's first edge only, and HDRF is better.

    gamma:
        :math:`\gamma`, above 1: how fast a part becomes unattractive as it grows.
    slack:
        A part with this many times its share of the vertices, or of the edges, is full.
    """

    gamma: float = 1.5
    slack: float = 1.1
    name = "fennel"

    def __post_init__(self) -> None:
        if not (self.gamma > 1 and self.slack >= 1):
            raise ValueError(
                f"Fennel(gamma={self.gamma}, slack={self.slack}): gamma must be above 1, slack at least 1"
            )

    @staticmethod
    @inlined
    def choose(
        u: int, v: int, hash_u: np.uint64, hash_v: np.uint64, placement: Placement, settings: Settings
    ) -> int:
        vertex = placement.vertex
        part_u = vertex[u, MASTER_PART] if vertex[u, FIRST_REPLICA] > 0 else -1
        part_v = vertex[v, MASTER_PART] if vertex[v, FIRST_REPLICA] > 0 else -1
        if part_u < 0 or part_v < 0:
            known = max(part_u, part_v)
            placement.score[:] = 0.0
            if known >= 0:
                placement.score[known] = 1.0
            part_u = part_v = int(np.int64(_best(placement, settings)))
        return int(np.int64(part_of_an_end(u, v, part_u, part_v, settings[1], placement)))

    @staticmethod
    @inlined
    def place(v: int, hash_v: np.uint64, neighbours: int, placement: Placement, settings: Settings) -> int:
        if neighbours == 0:
            placement.score[:] = 0.0
        return int(np.int64(_best(placement, settings)))


@inlined
def _best(placement: Placement, settings: Settings) -> int:
    """The part with the best score for a vertex whose neighbours by part are in `placement.score`."""
    gamma, slack = settings
    masters, parts = placement.masters, len(placement.load)
    edges = 1.0
    for count in placement.load:
        edges += count
    vertices = max(1.0, float(placement.totals[VERTEX_COUNT]))
    alpha = np.sqrt(parts) * edges / vertices**gamma
    limit = slack * vertices / parts + 1.0
    best = 0
    best_score = -np.inf
    for p in range(parts):
        # Full parts are compared by their size alone: one of them is always left.
        score = placement.score[p] - alpha * gamma * masters[p] ** (gamma - 1.0)
        if masters[p] >= limit:
            score = -1e300 - masters[p]
        if score > best_score:
            best, best_score = p, score
    return best
