"""Random vertex-cut: the part of an edge is a hash of its two ends."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from d3gnn.kernel.compiled import inlined
from d3gnn.kernel.hashing import mix
from d3gnn.kernel.partitioners.base import Partitioner, Placement, Settings


@dataclass(frozen=True)
class Random(Partitioner):
    """Spreads edges evenly, without regard to the graph. Parallel edges go to the same part."""

    name = "random"

    @staticmethod
    @inlined
    def choose(
        u: int, v: int, hash_u: np.uint64, hash_v: np.uint64, placement: Placement, settings: Settings
    ) -> int:
        return int(mix(hash_u ^ mix(hash_v)) % np.uint64(len(placement.load)))
