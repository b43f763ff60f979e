"""Which vertices a batch has touched, and what touched them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from d3gnn.kernel.compiled import lean
from d3gnn.types import Floats, Ints, Ints32

#: Arrival of something that no event has caused.
NEVER = int(np.iinfo(np.int64).max)


class Touched(NamedTuple):
    """A set of vertices with, for each, the newest event time and the oldest arrival behind it.

    A set of its own process, empty between batches: clearing costs what was touched.
    """

    mark: Ints32  # by vertex: place in the list plus 1; 0 for untouched
    vertices: Ints32  # the list, in the order of touching
    time: Ints
    arrival: Ints
    size: Ints  # [1]: how long the list is


def make_touched(vertices: int) -> Touched:
    """An empty set with room for this many vertices."""
    return Touched(
        np.zeros(vertices, np.int32), np.empty(vertices, np.int32),
        np.empty(vertices, np.int64), np.empty(vertices, np.int64), np.zeros(1, np.int64),
    )  # fmt: skip


@lean
def touch(touched: Touched, v: int, time: int, arrival: int) -> None:
    at = touched.mark[v] - 1
    if at < 0:
        at = touched.size[0]
        touched.size[0] += 1
        touched.mark[v] = at + 1
        touched.vertices[at] = v
        touched.time[at] = time
        touched.arrival[at] = arrival
    else:
        if time > touched.time[at]:
            touched.time[at] = time
        if arrival < touched.arrival[at]:
            touched.arrival[at] = arrival


@lean
def touch_all(touched: Touched, vertices: Ints32, time: Ints, arrival: Ints) -> None:
    for i in range(len(vertices)):
        touch(touched, vertices[i], time[i], arrival[i])


@lean
def touch_rows(
    touched: Touched, vertices: Ints32, time: Ints, arrival: Ints, values: Floats, into: Floats
) -> None:
    """Touch vertices and give each its row of values."""
    for i in range(len(vertices)):
        touch(touched, vertices[i], time[i], arrival[i])
        for k in range(values.shape[1]):
            into[vertices[i], k] = values[i, k]


@lean
def clear(touched: Touched) -> None:
    for i in range(touched.size[0]):
        touched.mark[touched.vertices[i]] = 0
    touched.size[0] = 0
