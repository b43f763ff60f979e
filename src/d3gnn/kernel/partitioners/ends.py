"""The part of one of an edge's ends: what partitioners of vertices do with edges."""

from __future__ import annotations

from d3gnn.kernel.compiled import inlined
from d3gnn.kernel.partitioners.base import (
    DEGREE,
    FIRST_REPLICA,
    NEXT_REPLICA,
    PLANNED_EDGES,
    REPLICA_PART,
    Placement,
)


@inlined
def part_of_an_end(u: int, v: int, part_u: int, part_v: int, slack: float, placement: Placement) -> int:
    """The part of u or that of v for an edge between them; -1 for an end without one.

    The part that holds a replica of the other end already; else that of the end of lower degree, so that the
    other one is replicated. A part is full above `slack` times its share of the edges (and of those that are
    planned). Instead of a full part, it is the other end's, and instead of two, the part with the fewest
    edges.
    """
    load = placement.load
    least = 0
    edges = load[0]
    for p in range(1, len(load)):
        edges += load[p]
        if load[p] < load[least]:
            least = p
    limit = slack * max(edges, placement.totals[PLANNED_EDGES]) / len(load) + 1.0
    if part_u < 0 or part_v < 0:
        best, other = max(part_u, part_v), least
    else:
        best, other = part_u, part_v
        has_v, has_u = is_in(v, part_u, placement), is_in(u, part_v, placement)
        if has_u != has_v:
            prefers_v = has_u
        else:
            prefers_v = placement.vertex[v, DEGREE] < placement.vertex[u, DEGREE]
        if prefers_v:
            best, other = part_v, part_u
    if best >= 0 and load[best] < limit:
        return best
    return other if load[other] < limit else least


@inlined
def is_in(v: int, part: int, placement: Placement) -> bool:
    """Whether a vertex has a replica in a part."""
    at = placement.vertex[v, FIRST_REPLICA] - 1
    while at >= 0:
        if placement.replica[at, REPLICA_PART] == part:
            return True
        at = placement.replica[at, NEXT_REPLICA] - 1
    return False
