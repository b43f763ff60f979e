"""Compiled loops over rows, side by side on threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from d3gnn.kernel.csr.edges import Csr

#: Fewer numbers than this are computed on the calling thread.
_SMALLEST = 1 << 16


def over_rows(loop: Callable[..., None], rows: Csr, width: int, *arguments: Any) -> None:
    """Run `loop(begin, end, *rows, *arguments)` for all rows, on as many threads as torch has.

    Ranges have about the same number of edges. Each row is computed by one thread, so that the result does
    not depend on the number of threads.
    """
    work = (len(rows.other) + rows.rows) * max(1, width)
    threads = torch.get_num_threads() if work >= _SMALLEST else 1
    if threads == 1:
        loop(0, rows.rows, *rows, *arguments)
        return
    # A row costs about as much as an edge.
    cost = rows.ends + np.arange(len(rows.ends))
    bounds = np.searchsorted(cost, np.linspace(0, cost[-1], threads + 1)).tolist()
    bounds[-1] = rows.rows
    steps = [
        _pool(threads - 1).submit(loop, begin, end, *rows, *arguments) for begin, end in pairwise(bounds[1:])
    ]
    loop(0, bounds[1], *rows, *arguments)
    wait(steps)
    for step in steps:
        step.result()


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, "d3gnn-rows")
