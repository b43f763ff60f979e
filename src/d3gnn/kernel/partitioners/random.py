"""Random vertex-cut: the part of an edge is a hash of its two ends."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from d3gnn.kernel.compiled import inlined
from d3gnn.kernel.hashing import mix
from d3gnn.kernel.partitioners.base import Partitioner


@dataclass(frozen=True)
class Random(Partitioner):
    """Spreads edges evenly and looks at nothing; parallel edges share a part."""

    name = "random"
    code = 0


@inlined
def choose_random(hash_u: np.uint64, hash_v: np.uint64, parts: int) -> int:
    return int(mix(hash_u ^ mix(hash_v)) % np.uint64(parts))
