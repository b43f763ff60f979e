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

from d3gnn.kernel.compiled import inlined
from d3gnn.types import Array

#: Bytes that come at a time.
LINE = 64
#: Rows that are worked on while others are on their way.
AHEAD = 6
_READ, _KEEP, _DATA = 0, 3, 1
_INT32 = ir.IntType(32)
_BYTE_POINTER = ir.IntType(8).as_pointer()


@intrinsic
def _fetch(typing: Any, array: Any, row: Any, byte: Any) -> Any:
    def code(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        view = context.make_array(signature.args[0])(context, builder, args[0])
        row, byte = (context.cast(builder, args[i], signature.args[i], types.intp) for i in (1, 2))
        begin = builder.mul(row, builder.extract_value(view.strides, 0))
        address = builder.gep(builder.bitcast(view.data, _BYTE_POINTER), [builder.add(begin, byte)])
        takes = ir.FunctionType(ir.VoidType(), [_BYTE_POINTER, _INT32, _INT32, _INT32])
        function = builder.module.declare_intrinsic("llvm.prefetch", [_BYTE_POINTER], takes)
        builder.call(function, [address, *(ir.Constant(_INT32, hint) for hint in (_READ, _KEEP, _DATA))])
        return context.get_dummy_value()

    return types.void(array, row, byte), code


_fetch_line: Callable[[Array, Any, int], None] = cast(Any, _fetch)


@inlined
def fetch(array: Array, row: Any) -> None:
    """Begin to bring the first bytes of a row into the caches; a row that does not exist does no harm."""
    _fetch_line(array, row, 0)


@inlined
def fetch_row(array: Array, row: int) -> None:
    """Begin to bring a row into the caches."""
    for byte in range(0, array.shape[1] * array.itemsize, LINE):
        _fetch_line(array, row, byte)
