"""Which features a vertex has, and how many vertices lack some: steps of `apply_events`."""

from __future__ import annotations

from d3gnn.kernel.compiled import inlined
from d3gnn.kernel.operators.graph_state import DELETED, PRESENT, Graph
from d3gnn.kernel.partitioners.base import LACKING_COUNT, LIVE_COUNT


@inlined
def without_features(v: int, graph: Graph) -> None:
    """A new vertex has no features yet."""
    for f in range(graph.feature_known.shape[1]):
        graph.feature_known[v, f] = 0
    graph.counters[LIVE_COUNT] += 1
    graph.counters[LACKING_COUNT] += _lacks_any(v, graph)


@inlined
def drop_features(v: int, graph: Graph) -> None:
    """The vertex is deleted."""
    graph.counters[LIVE_COUNT] -= 1
    graph.counters[LACKING_COUNT] -= _lacks_any(v, graph)


@inlined
def take_feature(v: int, f: int, time: int, is_delete: bool, graph: Graph) -> bool:
    """Whether the event is the newest one of this feature; if it is, the feature is set or deleted.

    The time of a deleted feature is kept: older events are late.
    """
    if graph.feature_known[v, f] != 0 and time < graph.feature_time[v, f]:
        return False
    graph.counters[LACKING_COUNT] -= _lacks_any(v, graph)
    graph.feature_known[v, f] = DELETED if is_delete else PRESENT
    graph.feature_time[v, f] = time
    graph.counters[LACKING_COUNT] += _lacks_any(v, graph)
    return True


@inlined
def _lacks_any(v: int, graph: Graph) -> int:
    for f in range(graph.feature_known.shape[1]):
        if graph.feature_known[v, f] != PRESENT:
            return 1
    return 0
