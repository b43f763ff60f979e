"""How often vertices change, in constant memory: a count-min sketch of exponential means.

The cells of a vertex are in one row of `sketch`, which is one cache line. A cell is a mean, as the bits of a
float32, and the count of a period with that period's number, 16 bits each. Means are updated when they are
read, so no pass over all of them is needed.
"""

from __future__ import annotations

import numpy as np

from d3gnn.kernel.compiled import inlined
from d3gnn.kernel.prefetch import LINE, fetch
from d3gnn.types import Doubles, Ints32

_BITS = 12
ROWS = 1 << _BITS
COLUMNS = LINE // 4
SKETCH_BYTES = ROWS * LINE
_PLACES = np.uint64(COLUMNS // 2)
#: Fibonacci hashing: 2^64 over the golden ratio.
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
#: Periods are counted modulo this; and the largest count of a period.
_CYCLE = 1 << 16
_MOST = (1 << 15) - 1
#: After this many periods a mean has faded to 0.
_FADED = 128


def fading(weight: float) -> Doubles:
    """The factor by which a mean has faded, by the number of periods since."""
    return np.array([1.0, *((1.0 - weight) ** np.arange(_FADED - 1)), 0.0])


@inlined
def fetch_places(vertex: int, sketch: Ints32) -> None:
    """Prefetch a vertex's cells."""
    fetch(sketch, np.uint64(vertex) * _SPREAD >> np.uint64(64 - _BITS))


@inlined
def count_and_rate(sketch: Ints32, vertex: int, times: int, period: int, fades: Doubles) -> float:
    """Count a vertex; returns its changes per period: the mean, or this period's count if that is larger.

    It has two cells. Other vertices in a cell only increase it, so the smaller of both is the estimate.
    """
    bits = np.uint64(vertex) * _SPREAD
    row, rest = bits >> np.uint64(64 - _BITS), bits >> np.uint64(32 - _BITS)
    one = rest % _PLACES
    other = one ^ (rest // _PLACES % _PLACES | np.uint64(1))
    first = _count(sketch, row, one, times, period, fades)
    return min(first, _count(sketch, row, other, times, period, fades))


@inlined
def _count(
    sketch: Ints32, row: np.uint64, place: np.uint64, times: int, period: int, fades: Doubles
) -> float:
    at = np.uint64(2) * place
    weight, number = 1.0 - fades[2], period & (_CYCLE - 1)
    mean, last = float(np.int32(sketch[row, at]).view(np.float32)), int(sketch[row, at + np.uint64(1)])
    count, passed = last >> 16, (number - last) & (_CYCLE - 1)
    # Without branches: they would be mispredicted.
    ended = (mean + weight * (count - mean)) * fades[min(passed, _FADED)]
    mean = ended if passed > 0 else mean
    count = min((0 if passed > 0 else count) + times, _MOST)
    sketch[row, at], sketch[row, at + np.uint64(1)] = np.float32(mean).view(np.int32), (count << 16) | number
    return float(max(mean, mean + weight * (count - mean)))
