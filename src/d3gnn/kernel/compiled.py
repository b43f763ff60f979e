"""Compile functions to machine code: loops over edges are written as loops.

What is compiled is kept on disk for the next process, in a folder named after a hash of the kernel's sources:
numba itself looks only at the file of a function, not at those of the functions that it calls.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

from d3gnn.places import first_writable, own_places

F = TypeVar("F", bound=Callable[..., object])


def compiled(function: F) -> F:
    """`function`, compiled at its first call."""
    return _compile(function)


def lean(function: F) -> F:
    """`function`, compiled without reference counts: for those that allocate nothing.

    Counting references to every array of every tuple costs more than the work itself where small functions
    that take such tuples are called once per event.
    """
    return _compile(function, _nrt=False)  # not among the documented options


def inlined(function: F) -> F:
    """`function`, compiled into those that call it: for small steps of a loop.

    Left to itself, the compiler calls those that seem large to it, and hands over every array in seven
    numbers: half of the time that it takes to decide on an edge.
    """
    return _compile(function, _nrt=False, forceinline=True)


def _compile(function: F, **options: Any) -> F:
    config: Any = numba.config
    theirs, config.CACHE_DIR = config.CACHE_DIR, _folder()
    try:
        return cast(F, numba.njit(cache=True, nogil=True, error_model="numpy", **options)(function))
    finally:
        config.CACHE_DIR = theirs


@cache
def _folder() -> str:
    package = Path(__file__).parent
    digest = hashlib.sha256(numba.__version__.encode())
    for path in sorted(package.rglob("*.py")):
        digest.update(path.read_bytes())
    name = f"numba-{digest.hexdigest()[:16]}"
    asked = os.environ.get("NUMBA_CACHE_DIR")
    places = [Path(asked)] if asked else own_places(package)
    otherwise = Path(tempfile.gettempdir()) / f"d3gnn-{os.getuid()}" / name
    return str(first_writable(place / name for place in places) or otherwise)
