"""What a large message leaves behind in a sum that it is taken out of again, and how that is noticed.

A float64 sum keeps 53 bits of the largest number that went through it: after 1e15, the third decimal of the
others is lost; after infinity, everything is. So each destination keeps one number, a bound on the messages
that its sums have taken in since they were last recomputed. When its partial aggregate is sent and the bound
dwarfs the sums, it is recomputed from its in-edges first. See docs/adr/0016-bounds-on-cancellation.md.

In the loops this costs one look at each new message, whose row is in the cache then, as integers: the bits of
positive floats are in the order of the floats, infinity and NaN last, and integers are compared in vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from d3gnn.kernel.compiled import inlined
from d3gnn.types import Doubles, Floats

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
    if not bound <= bounds[v]:
        bounds[v] = bound if bound < np.inf else np.inf


@inlined
def is_dwarfed(bounds: Doubles, v: int, sums: Floats, row: int, begin: int, end: int) -> bool:
    """Whether sums of v, which are some numbers of a row, may owe too much to messages that have left."""
    bound = bounds[v]
    if bound == 0.0:
        return False
    bits = np.int32(0)
    for k in range(begin, end):
        bits = larger(bits, sums[row, k])
    return not bound <= DWARFS * np.float64(_number(bits))
