"""Edges in compressed rows, by destination and by source."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from d3gnn.kernel.compiled import lean
from d3gnn.types import Ints, Ints32


class Csr(NamedTuple):
    """One direction: the edges of row v are from `ends[v]` up to `ends[v + 1]`."""

    ends: Ints
    other: Ints32  # the row at the other end
    edge: Ints32  # the number of the edge

    @property
    def rows(self) -> int:
        return len(self.ends) - 1


class Edges(NamedTuple):
    """The same edges in both directions. They are numbered in the order of `into`."""

    into: Csr  # by destination
    out: Csr  # by source


def both_ways(src: Ints32, dst: Ints32, sources: int, destinations: int) -> tuple[Edges, Ints32]:
    """Edges in compressed rows, and which given edge each of them is.

    >>> edges, order = both_ways(np.array([0, 1, 0], np.int32), np.array([1, 0, 0], np.int32), 2, 2)
    >>> order.tolist(), edges.into.other.tolist(), edges.out.other.tolist()
    ([1, 2, 0], [1, 0, 0], [0, 1, 0])
    """
    ends, order = by_row(dst, destinations)
    into = Csr(ends, src[order], np.arange(len(src), dtype=np.int32))
    return Edges(into, transposed(into, sources)), order


def transposed(rows: Csr, others: int) -> Csr:
    """The other direction of the same edges, which keep their numbers."""
    ends, order = by_row(rows.other, others)
    row = np.repeat(np.arange(rows.rows, dtype=np.int32), np.diff(rows.ends))
    return Csr(ends, row[order], rows.edge[order])


def by_row(row: Ints32, rows: int) -> tuple[Ints, Ints32]:
    """Where each row ends, and the edges in the order of rows."""
    ends, order = np.zeros(rows + 2, np.int64), np.empty(len(row), np.int32)
    _sort(np.ascontiguousarray(row), ends, order)
    return ends[:-1], order


@lean
def _sort(row: Ints32, ends: Ints, order: Ints32) -> None:
    """A stable counting sort; `ends` has two numbers more than there are rows."""
    for v in row:
        ends[v + 2] += 1
    for v in range(2, len(ends)):
        ends[v] += ends[v - 1]
    for i in range(len(row)):
        v = row[i]
        order[ends[v + 1]] = i
        ends[v + 1] += 1
