"""Compiled hash index over a list of edges: finds, adds and deletes edges by their two ends.

`src` and `dst` hold one row per edge. `table` maps (source, destination) to the row of the newest copy plus
1. `older[row]` is the row of the next older copy plus 1, or 0. `counts` holds the number of edges, and how
many of them are in the table.
"""

from __future__ import annotations

import numpy as np

from d3gnn.kernel.compiled import compiled, lean
from d3gnn.kernel.hashing import mix
from d3gnn.types import Bools, Ints, Ints32

#: Positions in `counts`.
EDGE_COUNT, INDEXED_COUNT = 0, 1


@lean
def _find(u: int, v: int, src: Ints, dst: Ints, table: Ints32) -> np.uint64:
    """The slot of the newest copy of edge (u, v) in the hash table, or the empty slot for it."""
    mask = np.uint64(len(table) - 1)
    at = mix((np.uint64(u) << np.uint64(32)) | np.uint64(v)) & mask
    while table[at] != 0 and (src[table[at] - 1] != u or dst[table[at] - 1] != v):
        at = (at + np.uint64(1)) & mask
    return at


@lean
def _remove(at: np.uint64, src: Ints, dst: Ints, table: Ints32) -> None:
    """Empty a slot, and move later entries of its probe sequence back (linear probing)."""
    mask = np.uint64(len(table) - 1)
    gap = at
    while True:
        at = (at + np.uint64(1)) & mask
        edge = table[at] - 1
        if edge < 0:
            break
        home = mix((np.uint64(src[edge]) << np.uint64(32)) | np.uint64(dst[edge])) & mask
        if ((at - home) & mask) >= ((at - gap) & mask):
            table[gap] = edge + 1
            gap = at
    table[gap] = 0


@lean
def _link(edge: int, src: Ints, dst: Ints, older: Ints32, table: Ints32) -> None:
    at = _find(src[edge], dst[edge], src, dst, table)
    older[edge] = table[at]
    table[at] = edge + 1


@compiled
def index_edges(src: Ints, dst: Ints, older: Ints32, table: Ints32, counts: Ints) -> None:
    """Insert the edges that are not in the hash table yet."""
    for edge in range(counts[INDEXED_COUNT], counts[EDGE_COUNT]):
        _link(edge, src, dst, older, table)
    counts[INDEXED_COUNT] = counts[EDGE_COUNT]


@lean
def _move_edge(last: int, into: int, src: Ints, dst: Ints, older: Ints32, table: Ints32) -> None:
    """Move an edge to another row of the arrays."""
    at = _find(src[last], dst[last], src, dst, table)
    if table[at] == last + 1:
        table[at] = into + 1
    else:
        copy = table[at] - 1
        while older[copy] != last + 1:
            copy = older[copy] - 1
        older[copy] = into + 1
    src[into], dst[into], older[into] = src[last], dst[last], older[last]


@compiled
def apply_edges(
    event_src: Ints, event_dst: Ints, removes: Bools, simple: bool, src: Ints, dst: Ints, older: Ints32,
    table: Ints32, counts: Ints, done: Bools,
) -> None:  # fmt: skip
    """Create and delete edges in order; the last edge moves into the row of a deleted one."""
    for i in range(len(event_src)):
        at = _find(event_src[i], event_dst[i], src, dst, table)
        found = int(table[at]) - 1
        done[i] = found >= 0 if removes[i] else found < 0 or not simple
        if not done[i]:
            continue
        if not removes[i]:
            edge = counts[EDGE_COUNT]
            src[edge], dst[edge] = event_src[i], event_dst[i]
            _link(edge, src, dst, older, table)
            counts[EDGE_COUNT] += 1
            continue
        if older[found] > 0:
            table[at] = older[found]
        else:
            _remove(at, src, dst, table)
        counts[EDGE_COUNT] -= 1
        if found != counts[EDGE_COUNT]:
            _move_edge(counts[EDGE_COUNT], found, src, dst, older, table)
    counts[INDEXED_COUNT] = counts[EDGE_COUNT]
