"""Sum, mean, maximum and minimum side by side in one state: how partials are merged, by a code for each."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from d3gnn.kernel.compiled import inlined
from d3gnn.types import Doubles, Floats, Ints

SUM, MEAN, MAX, MIN = range(4)
_CODES = {"sum": SUM, "mean": MEAN, "max": MAX, "min": MIN}


def reduction_codes(names: Iterable[str]) -> Ints:
    """The codes of reductions, as the `params` of the steps below."""
    names = list(names)
    if unknown := [name for name in names if name not in _CODES]:
        raise ValueError(
            f"the aggregator {unknown[0]!r} cannot be combined with others: only {', '.join(_CODES)} can"
        )
    return np.array([_CODES[name] for name in names], np.int64)


@inlined
def is_better(code: int, one: float, other: float) -> bool:
    """Whether a number replaces another as the extreme."""
    return one > other if code == MAX else one < other


@inlined
def accumulate_reductions(
    is_first: bool, weight: np.float32, message: Floats, total: Doubles, params: Ints
) -> None:
    """Add one message to states of which several stand side by side."""
    width = len(message)
    for s in range(len(params)):
        base = s * width
        for k in range(width):
            if params[s] <= MEAN:
                total[base + k] += np.float64(weight) * np.float64(message[k])
            else:
                weighted = weight * message[k]
                if is_first or is_better(params[s], weighted, total[base + k]):
                    total[base + k] = weighted


@inlined
def merge_reductions(is_first: bool, partial: Floats, total: Doubles, params: Ints) -> None:
    """Merge states in which several reductions of one width stand side by side."""
    width = len(total) // len(params)
    for s in range(len(params)):
        for k in range(s * width, (s + 1) * width):
            if params[s] <= MEAN:
                total[k] += partial[k]
            elif is_first or is_better(params[s], partial[k], total[k]):
                total[k] = partial[k]


@inlined
def finish_reductions(count: int, total: Doubles, params: Ints, aggregate: Floats) -> None:
    """Sums become means where they should."""
    width = len(total) // len(params)
    for s in range(len(params)):
        scale = 1.0 / count if params[s] == MEAN and count > 0 else 1.0
        for k in range(s * width, (s + 1) * width):
            aggregate[k] = total[k] * scale
