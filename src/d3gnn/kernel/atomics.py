"""Atomic steps for compiled loops on several threads: counters, and locks that many rows share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from d3gnn.kernel.compiled import inlined
from d3gnn.types import Array, Ints

#: Locks that all rows share, by the last bits of their number.
LOCKS = 1 << 14
#: Tries before a thread lets others run: the owner of the lock may wait for this processor.
_SPINS = 200
_yield_processor: Callable[[], int] = cast(Any, types.ExternalFunction("sched_yield", types.int32()))


def _place(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
    """The address of an element of a contiguous array."""
    view = context.make_array(signature.args[0])(context, builder, args[0])
    return builder.gep(view.data, [context.cast(builder, args[1], signature.args[1], types.intp)])


@intrinsic
def _fetch_add(typing: Any, array: Any, at: Any, value: Any) -> Any:
    def code(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        more = context.cast(builder, args[2], signature.args[2], array.dtype)
        return builder.atomic_rmw("add", _place(context, builder, signature, args), more, "monotonic")

    return array.dtype(array, at, value), code


@intrinsic
def _swap_if(typing: Any, array: Any, at: Any, expected: Any, value: Any) -> Any:
    def code(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        old, new = (context.cast(builder, args[i], signature.args[i], array.dtype) for i in (2, 3))
        place = _place(context, builder, signature, args)
        return builder.extract_value(builder.cmpxchg(place, old, new, "seq_cst", "seq_cst"), 1)

    return types.boolean(array, at, expected, value), code


@intrinsic
def _clear(typing: Any, array: Any, at: Any) -> Any:
    def code(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        zero = context.get_constant(array.dtype, 0)
        place = _place(context, builder, signature, args)
        builder.store_atomic(zero, place, "release", array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, at), code


#: Adds to an element and returns what it was before.
fetch_add: Callable[[Array, Any, Any], int] = cast(Any, _fetch_add)
#: Replaces an element if it is what is expected; returns whether it was.
swap_if: Callable[[Array, Any, Any, Any], bool] = cast(Any, _swap_if)
_unlock: Callable[[Array, Any], None] = cast(Any, _clear)


@inlined
def lock_both(locks: Ints, a: int, b: int) -> None:
    """Wait until no other thread works on one of two rows. All threads lock in the same order."""
    a, b = a & (LOCKS - 1), b & (LOCKS - 1)
    _lock(locks, min(a, b))
    if a != b:
        _lock(locks, max(a, b))


@inlined
def unlock_both(locks: Ints, a: int, b: int) -> None:
    """Let other threads work on two rows."""
    a, b = a & (LOCKS - 1), b & (LOCKS - 1)
    _unlock(locks, max(a, b))
    if a != b:
        _unlock(locks, min(a, b))


@inlined
def _lock(locks: Ints, row: int) -> None:
    tries = 0
    while not swap_if(locks, row, 0, 1):
        tries += 1
        if tries % _SPINS == 0:
            _yield_processor()
