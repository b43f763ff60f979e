"""Edges sorted by destination (CSC), for peers with their own message passing."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from d3gnn.kernel.compiled import compiled
from d3gnn.types import Ints, Ints32


class Block(NamedTuple):
    """The bipartite graph of one layer.

    Output v receives messages from the inputs `sources[begins[v]:begins[v + 1]]`. The first inputs are the
    outputs themselves, in the same order, for the root term of each vertex.
    """

    begins: Ints32
    sources: Ints32
    inputs: int

    @property
    def outputs(self) -> int:
        return len(self.begins) - 1


def block_of(src: Ints | Ints32, dst: Ints | Ints32, inputs: int, outputs: int) -> Block:
    """The edges sorted by destination.

    >>> block_of(np.array([2, 0, 1]), np.array([1, 0, 1]), 3, 2)
    Block(begins=array([0, 1, 3], dtype=int32), sources=array([0, 2, 1], dtype=int32), inputs=3)
    """
    begins, sources = np.zeros(outputs + 1, np.int32), np.empty(len(src), np.int32)
    _sort(dst, src, begins, sources)
    return Block(begins, sources, inputs)


@compiled
def _sort(by: Ints | Ints32, other: Ints | Ints32, begins: Ints32, out: Ints32) -> None:
    """A stable counting sort."""
    for v in by:
        begins[v + 1] += 1
    for v in range(1, len(begins)):
        begins[v] += begins[v - 1]
    for i in range(len(by) - 1, -1, -1):
        v = by[i] + 1
        begins[v] -= 1
        out[begins[v]] = other[i]
    for v in range(1, len(begins) - 1):
        begins[v] = begins[v + 1]
    if len(begins) > 1:
        begins[-1] = len(by)
