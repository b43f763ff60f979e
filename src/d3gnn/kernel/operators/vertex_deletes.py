"""Times of vertex deletes: an event that is older than the delete of its vertex is late.

Times are kept as stamps: integers without a sign that sort as the times do, where 0 stands for no delete.
Most events are newer than every delete, which one comparison shows.
"""

from __future__ import annotations

import numpy as np

from d3gnn.events import Element, Op
from d3gnn.kernel.compiled import inlined, lean
from d3gnn.kernel.operators.encode_events import Events
from d3gnn.kernel.operators.graph_state import Graph, Rules
from d3gnn.types import Ints, Small

_SIGN = np.uint64(1 << 63)
# Compiled code reads plain integers.
_DELETE, _VERTEX = int(Op.DELETE), int(Element.VERTEX)


@lean
def deletes_vertices(op: Small, element: Small) -> bool:
    """Whether any event deletes a vertex."""
    for i in range(len(op)):  # noqa: SIM110  # compiled
        if op[i] == _DELETE and element[i] == _VERTEX:
            return True
    return False


@inlined
def record_delete(code: int, time: int, graph: Graph) -> None:
    """Keep the time of the delete of a vertex, unless a newer one is kept already."""
    stamp = np.uint64(time) ^ _SIGN
    if stamp > graph.deleted[code]:
        graph.deleted[code] = stamp
    if stamp > graph.newest_delete[0]:
        graph.newest_delete[0] = stamp


@inlined
def is_older_than_delete(code: int, time: int, graph: Graph, rules: Rules) -> bool:
    """Whether a vertex was deleted at a later time than this, and that is not forgotten yet."""
    stamp, newest = np.uint64(time) ^ _SIGN, graph.newest_delete[0]
    if stamp >= newest:
        return False
    deleted = graph.deleted[code]
    return stamp < deleted and newest - deleted <= np.uint64(rules.keep_deletes)  # type: ignore[no-any-return]


@inlined
def is_late(i: int, code: int, events: Events, rules: Rules, graph: Graph) -> bool:
    """Whether a vertex of an event was deleted at a later time. What is logged was not late."""
    return not events.logged and is_older_than_delete(code, events.time[i], graph, rules)


def kept_deletes(graph: Graph, codes: int, keep_deletes: int) -> tuple[Ints, Ints]:
    """The first `codes` codes whose delete is not forgotten, and the times of these deletes."""
    deleted = graph.deleted[:codes]
    most = np.int64(keep_deletes).view(np.uint64)
    kept = np.flatnonzero((deleted > 0) & (graph.newest_delete[0] - deleted <= most))
    return kept, (deleted[kept] ^ _SIGN).view(np.int64)
