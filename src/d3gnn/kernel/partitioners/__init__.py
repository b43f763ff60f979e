"""Which part an edge goes to."""

from __future__ import annotations

import numpy as np

from d3gnn.kernel.compiled import inlined
from d3gnn.kernel.partitioners.base import (
    Partitioner,
    Placement,
    make_partitioner,
    partitioner,
    partitioners,
)
from d3gnn.kernel.partitioners.hdrf import HDRF, choose_hdrf
from d3gnn.kernel.partitioners.random import Random, choose_random

__all__ = [
    "HDRF",
    "Partitioner",
    "Placement",
    "Random",
    "choose",
    "make_partitioner",
    "partitioner",
    "partitioners",
]

_HDRF = HDRF.code


@inlined
def choose(
    code: int, u: int, v: int, hash_u: np.uint64, hash_v: np.uint64, placement: Placement,
    first_weight: float, second_weight: float,
) -> int:  # fmt: skip
    """The part for an edge from u to v, by the partitioner of this code."""
    if len(placement.load) == 1:
        return 0
    if code == _HDRF:
        return choose_hdrf(u, v, placement, first_weight, second_weight)
    return choose_random(hash_u, hash_v, len(placement.load))
