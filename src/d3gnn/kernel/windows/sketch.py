"""How often vertices change, in little memory: a count-min sketch of exponential means.

`rates` has a row for each place, and in it DEPTH means, then as many counts of this period.
"""

from __future__ import annotations

import numpy as np

from d3gnn.kernel.compiled import lean
from d3gnn.kernel.hashing import mix
from d3gnn.types import Doubles

DEPTH, BITS = 4, 12
WIDTH = 1 << BITS
SKETCH_BYTES = 2 * DEPTH * WIDTH * 8


@lean
def average(rates: Doubles, periods: int, weight: float) -> None:
    """So many periods have passed: take what was counted in the last of them that counted into the means."""
    fades = (1.0 - weight) ** (periods - 1)
    for at in range(len(rates)):
        for k in range(DEPTH):
            mean = rates[at, k]
            rates[at, k] = (mean + weight * (rates[at, DEPTH + k] - mean)) * fades
            rates[at, DEPTH + k] = 0.0


@lean
def count_and_rate(rates: Doubles, vertex: int, times: float, weight: float) -> float:
    """Count a vertex; how often it changes in a period, by the mean, or by this period if that is more."""
    rate = np.inf
    places = mix(np.uint64(vertex))  # of which each row takes some bits
    for k in range(DEPTH):
        at = (places >> np.uint64(k * BITS)) & np.uint64(WIDTH - 1)
        rates[at, DEPTH + k] += times
        mean, count = rates[at, k], rates[at, DEPTH + k]
        rate = min(rate, max(mean, mean + weight * (count - mean)))
    return rate
