"""What a large message leaves behind in a sum that it is taken out of again, and how that is noticed.

A float64 sum keeps 53 bits of the largest number that went through it: after 1e15, the third decimal of the
others is lost; after infinity, everything is. So each destination keeps one number, a bound on the messages
that its sums have taken in since they were last recomputed. When its partial aggregate is sent and the bound
dwarfs the sums, it is recomputed from its in-edges first. See docs/adr/0016-bounds-on-cancellation.md.

Each vertex also keeps a bound on its own message, so that an edge takes one number more, and no loop. It is
found when the message arrives, with the numbers as integers: the bits of positive floats are in the order of
the floats, infinity and NaN last, and integers are compared in vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from d3gnn.kernel.adjacency import BEGIN, EDGE, LENGTH, OTHER
from d3gnn.kernel.aggregators.base import weight_of
from d3gnn.kernel.compiled import inlined, lean
from d3gnn.types import Doubles, Floats, Ints32

#: Columns of bounds, by vertex: on the messages that its sums have taken in, and on the one that it sends.
TAKEN, SENT = range(2)
#: A bound dwarfs sums that are smaller than it by this factor: up to here, their error is about 1e-13.
DWARFS = 1024.0
_INT32, _FLOAT32 = ir.IntType(32), ir.FloatType()
_SIGN, _MANTISSA, _INFINITE = 0x7FFF_FFFF, 0x007F_FFFF, 0x7F80_0000


@intrinsic
def _larger(typing: Any, bits: Any, number: Any) -> Any:
    def code(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        positive = builder.and_(builder.bitcast(args[1], _INT32), ir.Constant(_INT32, _SIGN))
        return builder.select(builder.icmp_signed(">", positive, args[0]), positive, args[0])

    return types.int32(types.int32, types.float32), code


@intrinsic
def _as_number(typing: Any, bits: Any) -> Any:
    def code(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], _FLOAT32)

    return types.float32(types.int32), code


#: The bits of a size (from 0 on), or those of the number's absolute value if it is larger.
larger = cast(Callable[[Any, Any], Any], _larger)
_number = cast(Callable[[Any], Any], _as_number)


@inlined
def bound_of(bits: Any) -> float:
    """A bound on numbers with these bits: nearly the next power of two, so that small changes of a message
    do not change it. Infinite if one of the numbers is, or is NaN.
    """
    if bits >= _INFINITE:
        return np.inf
    return np.float64(_number(np.int32(bits | _MANTISSA))) if bits > 0 else 0.0


@inlined
def bound_of_row(rows: Floats, row: int, begin: int, end: int) -> float:
    """A bound on some numbers of a row."""
    bits = np.int32(0)
    for k in range(begin, end):
        bits = larger(bits, rows[row, k])
    return bound_of(bits)


@inlined
def take_bound(bounds: Doubles, v: int, bound: float) -> None:
    """The sums of v have taken in a message below this bound; NaN (infinity times 0) counts as infinite."""
    if not bound <= bounds[v, TAKEN]:
        bounds[v, TAKEN] = bound if bound < np.inf else np.inf


@lean
def renew_bounds(
    destinations: Ints32, segments: Ints32, pool: Ints32, edge_values: Floats, bounds: Doubles
) -> None:
    """The bounds of destinations that were recomputed: on the messages of their in-edges."""
    for v in destinations:
        begin = segments[v, BEGIN]
        bounds[v, TAKEN] = 0.0
        for j in range(begin, begin + segments[v, LENGTH]):
            weight = np.float64(weight_of(edge_values, pool[j, EDGE]))
            take_bound(bounds, v, abs(weight) * bounds[pool[j, OTHER], SENT])


@inlined
def is_dwarfed(bound: float, sums: Doubles, rounded: Floats, begin: int, end: int) -> bool:
    """Whether the sums of a destination, some numbers of its state, may owe too much to messages that have
    left. `rounded` is the same state as a row of a partial aggregate.
    """
    if bound == 0.0:
        return False
    bits = np.int32(0)
    for k in range(begin, end):
        bits = larger(bits, rounded[k])
    largest: float = np.float64(_number(bits))
    if bits >= _INFINITE:  # perhaps only as float32
        largest = 0.0
        for k in range(begin, end):
            if np.isnan(sums[k]):
                return True
            largest = max(largest, np.abs(sums[k]))
    return not bound <= DWARFS * largest
