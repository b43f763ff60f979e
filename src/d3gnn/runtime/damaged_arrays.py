"""Errors over damaged arrays.

Arrays are a cache without checksums while a query runs, since they change in every batch. Where a value in
them was damaged, an operator may fail in many ways; the error must then say which files to look at.
"""

from __future__ import annotations

from pathlib import Path

from d3gnn.kernel.mapped_state import StateLost

#: What operators may raise over damaged arrays.
COMPUTE_ERRORS = (ArithmeticError, LookupError, MemoryError, ValueError, AssertionError)


def arrays_failed(folder: str | Path, error: Exception) -> StateLost:
    """An error of the operators over the arrays in a folder, as lost state, which the next start rebuilds."""
    return StateLost(
        f"an operator failed over the arrays in {folder}: {type(error).__name__}: {error}. If files there "
        "were damaged, the next start of the query rebuilds them from the graph log. If the error comes "
        "again, it is not the arrays."
    )
