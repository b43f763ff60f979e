"""How often vertices change, in little memory: a count-min sketch of exponential means.

The places of a vertex lie in one row of `sketch`, which is one line of the processor's caches. A place is a
mean, as the bits of a float32, and the count of a period with that period's number, 16 bits each. Means are
brought up to date when somebody looks at them, so that nobody has to go through them all.
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
#: Spreads what is close together as far as can be: 2^64 over the golden ratio.
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
#: Periods are counted modulo this; and the largest count, at which a vertex is as busy as can be.
_CYCLE = 1 << 16
_MOST = (1 << 15) - 1
#: After so many periods nothing is left of a mean that anybody would notice.
_FADED = 128


def fading(weight: float) -> Doubles:
    """What is left of a mean so many periods after the one that it was made for; nothing after those."""
    return np.array([1.0, *((1.0 - weight) ** np.arange(_FADED - 1)), 0.0])


@inlined
def fetch_places(sketch: Ints32, vertex: int) -> None:
    """Begin to bring a vertex's places into the caches."""
    fetch(sketch, np.uint64(vertex) * _SPREAD >> np.uint64(64 - _BITS))


@inlined
def count_and_rate(sketch: Ints32, vertex: int, times: int, period: int, fades: Doubles) -> float:
    """Count a vertex; how often it changes in a period, by the mean, or by this period if that is more.

    It has two places, and whoever shares one of them makes it seem busier: the lower of both is nearer.
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
    # No branches: nobody could guess them.
    ended = (mean + weight * (count - mean)) * fades[min(passed, _FADED)]
    mean = ended if passed > 0 else mean
    count = min((0 if passed > 0 else count) + times, _MOST)
    sketch[row, at], sketch[row, at + np.uint64(1)] = np.float32(mean).view(np.int32), (count << 16) | number
    return float(max(mean, mean + weight * (count - mean)))
