"""Compile functions to machine code: loops over edges are written as loops.

What is compiled is kept on disk for the next process, in a folder named after a hash of the kernel's sources:
numba itself looks only at the file of a function, not at those of the functions that it calls. Functions of
plugins have a folder each inside of it, named after a hash of what they consist of.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar, cast

import numba
from numba.core.dispatcher import Dispatcher

from d3gnn.cache_dirs import first_writable, own_cache_dirs, temporary_folder
from d3gnn.kernel.code_digest import code_digest, is_own
from d3gnn.private import private_folder

F = TypeVar("F", bound=Callable[..., object])


def compiled(function: F) -> F:
    """`function`, compiled at its first call."""
    return _compile(function, {})


def lean(function: F) -> F:
    """`function`, compiled without reference counts: for functions that allocate nothing.

    Where a small function takes tuples of arrays and is called once per event, counting references to every
    array takes longer than the work itself.
    """
    return _compile(function, {"_nrt": False})  # not a documented option


def inlined(function: F) -> F:
    """`function`, compiled into its callers: for small steps of a loop.

    By default the compiler does not inline what seems large to it, and passes every array as seven numbers:
    half of the time that it takes to choose the part of an edge.
    """
    return _compile(function, {"_nrt": False, "forceinline": True})


def specialised(function: F, name: str, **steps: Callable[..., object]) -> F:
    """A copy of a compiled function that calls other steps.

    `steps` replace the compiled functions that `function`, or a compiled function that it calls, knows by
    these names in its module. They are inlined into the copy as the originals were, so a plugin costs nothing
    per call. `name` tells the copies of one function apart; the same name and steps give the same copy.

    >>> @inlined
    ... def step(x: int) -> int:
    ...     return x
    >>> @lean
    ... def twice(x: int) -> int:
    ...     return step(step(x))
    >>> @inlined
    ... def double(x: int) -> int:
    ...     return 2 * x
    >>> twice(3), specialised(twice, "double", step=double)(3)
    (3, 12)
    """
    given: list[tuple[str, Any]] = sorted(steps.items())
    plugged = (step for _, step in given if not is_own(step.py_func))
    unique = "_".join([name, *map(code_digest, plugged)])
    key = (function, unique, tuple(given))
    if key not in _copies:
        _copies[key] = _with_steps(function, unique, steps, {})
    return cast(F, _copies[key])


_copies: dict[Any, Any] = {}


def _with_steps(function: Any, name: str, steps: dict[str, Any], seen: dict[Any, Any]) -> Any:
    """The function itself, if none of the steps is called below it; else a compiled copy."""
    if function in seen:
        return seen[function]
    python = function.py_func
    called = {
        n: v for n in python.__code__.co_names if isinstance(v := python.__globals__.get(n), Dispatcher)
    }
    other = {n: steps[n] if n in steps else _with_steps(v, name, steps, seen) for n, v in called.items()}
    seen[function] = function
    if any(other[n] is not v for n, v in called.items()):
        copy = FunctionType(
            python.__code__,
            python.__globals__ | other,
            python.__name__,
            python.__defaults__,
            python.__closure__,
        )
        # The cache on disk finds a function by its file and this name.
        copy.__qualname__ = f"{python.__qualname__}_{name}"
        seen[function] = _compile(copy, function.d3gnn_options)
    return seen[function]


def _compile(function: F, options: dict[str, Any]) -> F:
    config: Any = numba.config
    folder = _folder() if is_own(function) else f"{_folder()}/{code_digest(function)}"
    theirs, config.CACHE_DIR = config.CACHE_DIR, folder
    try:
        decorate = partial(numba.njit, nogil=True, error_model="numpy", **options)
        try:
            made: Any = decorate(cache=True)(function)
        except RuntimeError:  # a function without a file, from a prompt, cannot be cached
            made = decorate()(function)
    finally:
        config.CACHE_DIR = theirs
    made.d3gnn_options = options
    return cast(F, made)


@cache
def _folder() -> str:
    package = Path(__file__).parent
    digest = hashlib.sha256(numba.__version__.encode())
    for path in sorted(package.rglob("*.py")):
        digest.update(path.read_bytes())
    name = f"numba-{digest.hexdigest()[:16]}"
    asked = os.environ.get("NUMBA_CACHE_DIR")
    places = [Path(asked)] if asked else own_cache_dirs(package)
    # numba runs what it finds there, so it must be a folder that only this user can write to.
    return str(first_writable(place / name for place in places) or private_folder(temporary_folder() / name))
