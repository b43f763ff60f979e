"""The neighbourhood of a vertex in a vertex stream: the edges that follow the event of the vertex."""

from __future__ import annotations

from d3gnn.events import Element, Op
from d3gnn.kernel.compiled import inlined
from d3gnn.kernel.operators.encode_events import Events
from d3gnn.kernel.operators.graph_state import Graph, vertex_of
from d3gnn.kernel.partitioners.base import MASTER_PART
from d3gnn.types import Ints

# Compiled code reads plain integers.
_EDGE, _CREATE = int(Element.EDGE), int(Op.CREATE)


@inlined
def find_neighbours(k: int, order: Ints, events: Events, graph: Graph) -> int:
    """Number of known vertices to which the events directly behind number k create edges from its vertex.

    They are counted in `placement.score` by the part of their master, if there are any.
    """
    code, found, score = events.src[order[k]], 0, graph.placement.score
    for next in range(k + 1, len(order)):
        j = order[next]
        if events.src[j] != code or events.element[j] != _EDGE or events.op[j] != _CREATE:
            break
        v = vertex_of(events.dst[j], graph)
        if v < 0 or events.dst[j] == code:
            continue
        if found == 0:
            score[:] = 0.0
        score[graph.placement.vertex[v, MASTER_PART]] += 1.0
        found += 1
    return found
