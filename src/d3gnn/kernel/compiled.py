"""Compile a function to machine code: loops over edges are written as loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., object])


def compiled(function: F) -> F:
    """`function`, compiled at its first call and kept on disk for the next process."""
    return cast(F, numba.njit(cache=True, nogil=True, error_model="numpy")(function))


def lean(function: F) -> F:
    """`function`, compiled without reference counts: for those that allocate nothing.

    Counting references to every array of every tuple costs more than the work itself where small functions
    that take such tuples are called once per event.
    """
    options: dict[str, Any] = {"_nrt": False}  # not among the documented options
    return cast(F, numba.njit(cache=True, nogil=True, error_model="numpy", **options)(function))
