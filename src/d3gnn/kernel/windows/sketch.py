"""How often vertices change, in little memory: a count-min sketch of exponential means.

`rates` has a row for each place, and in it for each hash a mean, the count of a period, the number of that
period, and a gap that keeps rows apart in the processor's caches. Means are brought up to date when somebody
looks at them, so that nobody has to go through them all.
"""

from __future__ import annotations

import numpy as np

from d3gnn.kernel.compiled import inlined
from d3gnn.kernel.hashing import mix
from d3gnn.kernel.prefetch import fetch
from d3gnn.types import Doubles, Floats

DEPTH, BITS = 2, 13
WIDTH = 1 << BITS
COLUMNS = 4 * DEPTH
SKETCH_BYTES = COLUMNS * WIDTH * 4
#: Periods are counted modulo this, up to which float32 has every integer.
_CYCLE = 1 << 24
#: After so many periods nothing is left of a mean that anybody would notice.
_FADED = 128


def fading(weight: float) -> Doubles:
    """What is left of a mean after so many periods without a change; nothing after those."""
    return (1.0 - weight) ** np.arange(_FADED, dtype=np.float64)


@inlined
def fetch_places(rates: Floats, vertex: int) -> None:
    """Begin to bring a vertex's places into the caches."""
    places = mix(np.uint64(vertex))
    for k in range(DEPTH):
        fetch(rates, (places >> np.uint64(k * BITS)) & np.uint64(WIDTH - 1))


@inlined
def count_and_rate(rates: Floats, vertex: int, times: float, period: int, fades: Doubles) -> float:
    """Count a vertex; how often it changes in a period, by the mean, or by this period if that is more."""
    weight = 1.0 - fades[1]
    rate, number = np.inf, period & (_CYCLE - 1)
    places = mix(np.uint64(vertex))  # of which each row takes some bits
    for k in range(DEPTH):
        at = (places >> np.uint64(k * BITS)) & np.uint64(WIDTH - 1)
        mean, count = rates[at, 4 * k], rates[at, 4 * k + 1]
        passed = (number - int(rates[at, 4 * k + 2])) & (_CYCLE - 1)
        if passed > 0:
            mean = (mean + weight * (count - mean)) * (fades[passed - 1] if passed <= len(fades) else 0.0)
            count = 0.0
            rates[at, 4 * k], rates[at, 4 * k + 2] = mean, number
        count += times
        rates[at, 4 * k + 1] = count
        rate = min(rate, max(mean, mean + weight * (count - mean)))
    return rate
