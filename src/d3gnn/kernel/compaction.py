"""Compaction of the graph log: the shortest log that leaves the same graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from d3gnn.events import Element, EventBatch, GraphSchema, Op
from d3gnn.events.check import feature_index
from d3gnn.events.event import NO_TIME
from d3gnn.events.keys import Keys
from d3gnn.kernel.expiry_wheel import EXPIRES, TTL
from d3gnn.kernel.log import LogEntry
from d3gnn.kernel.operators.decisions import (
    Adds,
    DecisionRows,
    EdgeFeatureUpdates,
    FeatureUpdates,
    NewVertices,
)
from d3gnn.kernel.operators.gather import gather_survivors
from d3gnn.kernel.operators.graph_state import DELETED, Graph
from d3gnn.kernel.operators.partition import Partition, PartitionedBatch
from d3gnn.kernel.operators.vertex_deletes import kept_deletes
from d3gnn.kernel.partitioners.base import CODE, MASTER_PART
from d3gnn.types import Array


def compact(entries: Sequence[LogEntry], schema: GraphSchema, parts: int) -> LogEntry | None:
    """One entry with the graph's vertices, edges, features and labels, each once; None for an empty log.

    Events keep their times, so that older events stay late. For the same reason, the entry begins with the
    deletes of vertices, as far as they are not forgotten.
    """
    entries = [entry for entry in entries if len(entry)]
    if not entries:
        return None
    whole = LogEntry.concat(entries)
    partition = Partition(schema, parts, "random")
    return compacted(whole, partition, partition.process(whole.events, 0, replay=whole.part))


def compacted(whole: LogEntry, partition: Partition, result: PartitionedBatch) -> LogEntry:
    """As `compact`, where Partition has just processed the whole log as one batch, with this result."""
    events, decisions = whole.events, result.decisions
    graph, feature = partition.graph(), feature_index(events, partition.schema)
    pieces = [
        _deletes(graph, partition),
        _vertices(events, decisions, graph, partition),
        _edges(whole, decisions, graph, feature, partition),
        _features(events, decisions, graph, feature),
        _labels(graph, partition),
    ]
    pieces = [piece for piece in pieces if len(piece)]
    return LogEntry.concat(pieces) if pieces else LogEntry(events.take(np.zeros(0, np.int64)), whole.part[:0])


def feature_means(graph: LogEntry, schema: GraphSchema) -> dict[str, tuple[float, ...]]:
    """The mean of each vertex feature in a compacted graph, over the vertices that have it."""
    events, means = graph.events, dict[str, tuple[float, ...]]()
    if events.values is None or events.value_offsets is None:
        return means
    index = np.where(events.element == Element.FEATURE, feature_index(events, schema), -1)
    index[events.op == Op.DELETE] = -1
    for i, (name, width) in enumerate(schema.features.items()):
        first = events.value_offsets[:-1][index == i]
        if len(first):
            mean = events.values[first[:, None] + np.arange(width)].mean(axis=0, dtype=np.float64)
            means[name] = tuple(mean.astype(np.float32).tolist())
    return means


def _without_part(events: EventBatch) -> LogEntry:
    return LogEntry(events, np.full(len(events), -1, np.int32))


def _deletes(graph: Graph, partition: Partition) -> LogEntry:
    """The newest delete of each vertex. Null arrivals sort them before everything of the same time."""
    code, time = kept_deletes(graph, len(partition.ids), partition.schema.keep_deletes)
    n = len(code)
    batch = EventBatch(
        op=np.full(n, Op.DELETE, np.int8),
        element=np.full(n, Element.VERTEX, np.int8),
        src=partition.ids.keys.take(code),
        time=time,
        arrival=np.full(n, NO_TIME),
    )
    return _without_part(batch)


def without_deletes(entry: LogEntry) -> LogEntry:
    """A compacted log without the deletes of vertices: the graph alone."""
    events = entry.events
    kept = np.flatnonzero((events.op != Op.DELETE) | (events.element != Element.VERTEX))
    arrival = None if entry.arrival is None else entry.arrival[kept]
    return LogEntry(events.take(kept), entry.part[kept], arrival)


def _vertices(events: EventBatch, decisions: DecisionRows, graph: Graph, partition: Partition) -> LogEntry:
    event = decisions.of(NewVertices).event
    vertex = np.arange(len(event))
    is_live = _is_live(vertex, graph)
    vertex, event = vertex[is_live], event[is_live]
    placed = graph.placement.vertex[vertex]
    src = partition.ids.keys.take(placed[:, CODE])
    creates = _vertex_creates(events, src, event)
    if partition.schema.vertex_ttl is not None:  # until then, whatever prolonged the vertex so far
        ttl = graph.vertex_expiry[vertex, EXPIRES] - creates.time
        creates = replace(creates, ttl=ttl)
    return LogEntry(creates, placed[:, MASTER_PART])


def _vertex_creates(events: EventBatch, src: Keys, event: Array) -> EventBatch:
    """Creates of vertices without values, at the times of these events."""
    n = len(event)
    return EventBatch(
        op=np.full(n, Op.CREATE, np.int8),
        element=np.full(n, Element.VERTEX, np.int8),
        src=src,
        time=events.time[event],
        arrival=None if events.arrival is None else events.arrival[event],
    )


def _edges(
    whole: LogEntry, decisions: DecisionRows, graph: Graph, feature: Array, partition: Partition
) -> LogEntry:
    """Edges in the order of their creation, each followed by its features.

    A feature event sets the newest parallel copy, so it must come before the next copy. A repeated create
    that prolongs its edge comes behind them.
    """
    events, adds = whole.events, decisions.of(Adds)
    survives = np.zeros(len(adds.event), np.bool_)
    gather_survivors(*decisions, graph.live, graph.placement.vertex, survives)
    kept = np.flatnonzero(survives)
    created = adds.event[kept]
    edges = replace(events.take(created), values=None, value_offsets=None, feature=None, names=())
    edge_entry = LogEntry(edges, whole.part[created])
    record, event = decisions.of(EdgeFeatureUpdates)
    if not len(kept) or (not len(record) and partition.schema.ttl is None):
        return edge_entry
    kept_record = adds.record[kept]
    pieces, positions = [edge_entry], [np.arange(len(kept))]
    newest = edges.time.copy()
    if len(record):
        edge, event = _last_edge_features(adds, kept, record, event, feature)
        features = _as_values(events.take(event), Element.EDGE_FEATURE)
        pieces.append(features)
        positions.append(edge)
        np.maximum.at(newest, edge, features.events.time)
    if partition.schema.ttl is not None:
        expiry = partition.edge_expiry()[kept_record]
        last = expiry[:, EXPIRES] - expiry[:, TTL]
        prolonged = np.flatnonzero(last > newest)
        repeats = replace(edges.take(prolonged), time=last[prolonged], ttl=None)
        pieces.append(_without_part(repeats))
        positions.append(prolonged)
    both = LogEntry.concat(pieces)
    order = np.argsort(np.concatenate(positions), kind="stable")
    return LogEntry(both.events.take(order), both.part[order])


def _last_edge_features(
    adds: Adds, kept: Array, record: Array, event: Array, feature: Array
) -> tuple[Array, Array]:
    """The last event of each feature of the kept edges: the edge, and the event."""
    created, kept_record = adds.event[kept], adds.record[kept]
    edge_of_record = np.full(int(max(record.max(), kept_record.max())) + 1, -1, np.int64)
    edge_of_record[kept_record] = np.arange(len(kept))
    edge = edge_of_record[record]
    # Several edges may have used a record: only events after the last one was created are this edge's.
    of_edge = (edge >= 0) & (event >= created[np.maximum(edge, 0)])
    edge, event = edge[of_edge], event[of_edge]
    last = _last_of_each(edge, feature[event])
    return edge[last], event[last]


def _features(events: EventBatch, decisions: DecisionRows, graph: Graph, feature: Array) -> LogEntry:
    vertex, event = decisions.of(FeatureUpdates)
    is_live = _is_live(vertex, graph)
    vertex, event = vertex[is_live], event[is_live]
    event = event[_last_of_each(vertex, feature[event])]
    return _as_values(events.take(event), Element.FEATURE)


def _as_values(events: EventBatch, element: Element) -> LogEntry:
    """Events that set or delete features, whatever their element was."""
    op = np.where(events.op == Op.DELETE, Op.DELETE, Op.CREATE).astype(np.int8)
    return _without_part(replace(events, element=np.full(len(events), element, np.int8), op=op, ttl=None))


def _labels(graph: Graph, partition: Partition) -> LogEntry:
    """Labels; a deleted label, whose time still counts, becomes a create and a delete."""
    code = np.flatnonzero(graph.label_state[: len(partition.ids)])
    deleted = graph.label_state[code] == DELETED
    rows = np.repeat(code, np.where(deleted, 2, 1))
    is_delete = np.zeros(len(rows), np.bool_)
    is_delete[1:] = rows[1:] == rows[:-1]
    width = graph.label.shape[1]
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(np.where(is_delete, 0, width), out=offsets[1:])
    batch = EventBatch(
        op=np.where(is_delete, Op.DELETE, Op.CREATE).astype(np.int8),
        element=np.full(len(rows), Element.LABEL, np.int8),
        src=partition.ids.keys.take(rows),
        time=graph.label_time[rows],
        values=graph.label[rows[~is_delete]].reshape(-1),
        value_offsets=offsets,
        arrival=graph.label_time[rows],
    )
    return _without_part(batch)


def _is_live(vertex: Array, graph: Graph) -> Array:
    is_live: Array = graph.live[graph.placement.vertex[vertex, CODE]] - 1 == vertex
    return is_live


def _last_of_each(owner: Array, feature: Array) -> Array:
    """Positions of the last entry of each (owner, feature), in order."""
    last: dict[tuple[int, int], int] = {
        pair: i for i, pair in enumerate(zip(owner.tolist(), feature.tolist(), strict=True))
    }
    return np.array(sorted(last.values()), np.int64)
