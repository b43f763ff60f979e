"""The set of vertices that a batch has touched, with the causes.

A set is one array, because compiled functions take single arrays many times faster than tuples of arrays.
Row 0 holds the size of the set; rows 1 to size are its entries in the order of touching: the vertex, the
newest event time and the oldest arrival of its causes, and how often it was touched. The column MARK is
separate: row v + 1 holds the entry of vertex v, offset by the number in row 0. A mark that is not above that
number belongs to a set that was emptied since, so emptying is free. The set belongs to one process and is
empty between batches.
"""

from __future__ import annotations

import numpy as np

from d3gnn.kernel.compiled import inlined, lean
from d3gnn.kernel.memory import zeros
from d3gnn.types import INT64, Array, Bools, Floats, Ints, Ints32

MARK, VERTEX, TIME, ARRIVAL, TOUCHES = range(5)
COLUMNS = 5
#: From this many entries on, sorting them into the order of memory pays off.
_WORTH_SORTING = 256
#: The arrival of a change without a cause.
NEVER = int(np.iinfo(np.int64).max)


def make_touched(vertices: int) -> Ints:
    """An empty set with room for this many vertices."""
    return zeros((vertices + 1, COLUMNS), INT64)


def size(touched: Ints) -> int:
    """How many vertices are in the set."""
    return touched.item(0, VERTEX)


def are_in(touched: Ints, vertices: Array) -> Bools:
    """Which of these are in the set."""
    found: Bools = touched[vertices + 1, MARK] > touched[0, MARK]
    return found


def sort(touched: Ints) -> None:
    """Sort the entries of a large set by vertex, which is the order of memory.

    The set is closed then: nothing may be touched before it is emptied.
    """
    n = size(touched)
    if n >= _WORTH_SORTING:
        entries = touched[1 : n + 1]
        # Vertex and place in one number: plain numbers are sorted many times faster than places by a key.
        places = (entries[:, VERTEX] << 32) | np.arange(n)
        places.sort()
        places &= 0xFFFF_FFFF
        entries[:, VERTEX:] = entries.take(places, axis=0)[:, VERTEX:]


@inlined
def is_in(touched: Ints, v: int) -> bool:
    return touched[v + 1, MARK] > touched[0, MARK]  # type: ignore[no-any-return]


@inlined
def touch(touched: Ints, v: int, time: int, arrival: int) -> None:
    at = touched[v + 1, MARK] - touched[0, MARK]
    if at <= 0:
        touched[v + 1, MARK] = touched[0, MARK] + touched[0, VERTEX] + 1
        append(touched, v, time, arrival)
    else:
        touched[at, TOUCHES] += 1
        if time > touched[at, TIME]:
            touched[at, TIME] = time
        if arrival < touched[at, ARRIVAL]:
            touched[at, ARRIVAL] = arrival


@inlined
def append(touched: Ints, v: int, time: int, arrival: int) -> None:
    """Touch a vertex that is not in the set and is not touched again before the set is emptied."""
    at = touched[0, VERTEX] + 1
    touched[0, VERTEX] = at
    touched[at, VERTEX] = v
    touched[at, TIME] = time
    touched[at, ARRIVAL] = arrival
    touched[at, TOUCHES] = 1


@lean
def touch_all(touched: Ints, vertices: Ints32, time: Ints, arrival: Ints) -> None:
    for i in range(len(vertices)):
        touch(touched, vertices[i], time[i], arrival[i])


@lean
def touch_rows(
    touched: Ints, vertices: Ints32, time: Ints, arrival: Ints, values: Floats, into: Floats
) -> None:
    """Touch vertices and store the row of values of each."""
    for i in range(len(vertices)):
        touch(touched, vertices[i], time[i], arrival[i])
        for k in range(values.shape[1]):
            into[vertices[i], k] = values[i, k]


@inlined
def clear(touched: Ints) -> None:
    keep(touched, 0)


@inlined
def keep(touched: Ints, n: int) -> None:
    """Keep the first n entries, which may have been overwritten, as the whole set. It is closed then."""
    touched[0, MARK] += touched[0, VERTEX]
    touched[0, VERTEX] = n
