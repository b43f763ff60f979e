"""Ask for memory before it is needed.

A loop that goes from row to row of arrays larger than the caches waits for nearly every row, and where a row
leads to the next array, the processor cannot look ahead by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from d3gnn.types import Array

_READ, _KEEP, _DATA = 0, 3, 1
_INT32 = ir.IntType(32)
_BYTE_POINTER = ir.IntType(8).as_pointer()


@intrinsic
def _fetch(typing: Any, array: Any, row: Any) -> Any:
    def code(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        kind, integer = signature.args
        view = context.make_array(kind)(context, builder, args[0])
        at = builder.mul(
            context.cast(builder, args[1], integer, types.intp), builder.extract_value(view.strides, 0)
        )
        address = builder.gep(builder.bitcast(view.data, _BYTE_POINTER), [at])
        takes = ir.FunctionType(ir.VoidType(), [_BYTE_POINTER, _INT32, _INT32, _INT32])
        function = builder.module.declare_intrinsic("llvm.prefetch", [_BYTE_POINTER], takes)
        builder.call(function, [address, *(ir.Constant(_INT32, hint) for hint in (_READ, _KEEP, _DATA))])
        return context.get_dummy_value()

    return types.void(array, row), code


#: `fetch(array, row)` begins to bring the first bytes of a row into the caches, for compiled code; one that
#: does not exist does no harm.
fetch: Callable[[Array, Any], None] = cast(Any, _fetch)
