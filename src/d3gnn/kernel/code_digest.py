"""A hash of a function and of everything that numba compiles into it.

numba freezes the globals that a function reads, and inlines the functions that it calls. Its cache on disk
looks at the file of the function only, so a changed constant or helper of another file would go unnoticed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
from numba.core.dispatcher import Dispatcher

#: Packages whose functions numba implements itself, or whose version is part of the cache's folder.
_KNOWN = ("numpy", "math", "numba", "builtins", "d3gnn")
_MISSING = object()


def is_own(function: Any) -> bool:
    """Whether it belongs to d3gnn, of which the cache's folder has a hash."""
    return str(function.__module__).startswith("d3gnn.")


def code_digest(function: Any) -> str:
    """A hash of a function, compiled or not, that is the same in every process."""
    text = "\n".join(_function(getattr(function, "py_func", function), set()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _function(function: Any, seen: set[int]) -> Iterator[str]:
    """Its code, its defaults, and the values that it takes from elsewhere."""
    if id(function) in seen:
        return
    seen.add(id(function))
    names: list[str] = []
    yield from _code(function.__code__, names)
    for value in function.__defaults__ or ():
        yield from _value(value, (), seen)
    for cell in function.__closure__ or ():
        try:
            yield from _value(cell.cell_contents, names, seen)
        except ValueError:  # not assigned yet
            yield "empty"
    for name in names:
        value = function.__globals__.get(name, _MISSING)
        if value is not _MISSING:
            yield name
            yield from _value(value, names, seen)


def _code(code: CodeType, names: list[str]) -> Iterator[str]:
    """Instructions, names and constants; code inside of it, such as a comprehension, too."""
    yield code.co_code.hex()
    yield repr(code.co_names)
    names += [name for name in code.co_names if name not in names]
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code(constant, names)
        else:
            yield repr(constant)


def _value(value: Any, names: Any, seen: set[int]) -> Iterator[str]:
    """A global, a default or a captured value; `names` are the attributes that the code may read of it."""
    if isinstance(value, Dispatcher):
        value = value.py_func
    if isinstance(value, ModuleType):
        yield value.__name__
        if id(value) not in seen and value.__name__.split(".")[0] not in _KNOWN:
            seen.add(id(value))
            for name in names:
                if (attribute := getattr(value, name, _MISSING)) is not _MISSING:
                    yield from _value(attribute, names, seen)
            seen.discard(id(value))
    elif isinstance(value, FunctionType) and value.__module__.split(".")[0] not in _KNOWN:
        yield from _function(value, seen)
    elif isinstance(value, FunctionType | type):
        yield f"{value.__module__}.{value.__qualname__}"
    elif isinstance(value, np.ndarray):
        yield f"{value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
    elif isinstance(value, tuple):
        for item in value:
            yield from _value(item, names, seen)
    else:
        text = repr(value)
        # Addresses differ between processes; such objects are not compiled in.
        yield type(value).__qualname__ if " at 0x" in text else text
