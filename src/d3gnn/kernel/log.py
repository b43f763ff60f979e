"""The graph log in memory, and what is left of a log when all that was undone is left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from d3gnn.events import Element, EventBatch, GraphSchema, Keys, Op, feature_index
from d3gnn.kernel.operators import decide as d
from d3gnn.kernel.operators.partition import LogEntry, Partition, kept_adds
from d3gnn.kernel.partitioners.base import CODE, MASTER_PART
from d3gnn.types import Array

_COALESCE = 256


class MemoryLog:
    """Entries one after another; small ones are joined now and then, so a million cost little."""

    def __init__(self) -> None:
        self._entries: list[LogEntry] = []
        self._recent: list[LogEntry] = []

    def append(self, entry: LogEntry) -> None:
        if not len(entry):
            return
        self._recent.append(entry)
        if len(self._recent) >= _COALESCE:
            self._entries.append(join(self._recent))
            self._recent = []

    @property
    def entries(self) -> list[LogEntry]:
        return self._entries + self._recent

    def replace(self, entry: LogEntry) -> None:
        """Begin anew with this entry alone."""
        self._entries, self._recent = [entry], []


def join(entries: Sequence[LogEntry]) -> LogEntry:
    """One entry from several."""
    events = EventBatch.concat([e.events for e in entries])
    arrivals = [e.events.arrival if e.arrival is None else e.arrival for e in entries]
    if all(a is not None for a in arrivals):
        events = replace(events, arrival=np.concatenate(arrivals))  # type: ignore[arg-type]
    return LogEntry(events, np.concatenate([e.part for e in entries]))


def compact(entries: Sequence[LogEntry], schema: GraphSchema, parts: int) -> LogEntry | None:
    """The shortest log that leaves the same graph: its vertices, edges, features and labels, each once.

    Times stay as they were, so that late events stay late. None for a log without events.
    """
    entries = [e for e in entries if len(e)]
    if not entries:
        return None
    whole = join(entries)
    partition = Partition(schema, parts, "random")
    events = whole.events
    result = partition.process(events, 0, replay=whole.part)
    made, graph = result.decisions, partition._graph()
    feature = feature_index(events, schema)
    pieces = [
        _vertices(events, made, graph, partition),
        _edges(whole, made, graph, feature),
        _features(events, made, graph, feature),
        _labels(events, graph, partition),
    ]
    pieces = [piece for piece in pieces if len(piece)]
    return join(pieces) if pieces else LogEntry(events.take(np.zeros(0, np.int64)), whole.part[:0])


def _bare(events: EventBatch, src: Keys, at: Array, element: Element, op: Op) -> EventBatch:
    """Events at `at` as ones of another kind, without values."""
    n = len(at)
    return EventBatch(
        op=np.full(n, op, np.int8),
        element=np.full(n, element, np.int8),
        src=src,
        time=events.time[at],
        arrival=None if events.arrival is None else events.arrival[at],
    )


def _vertices(events: EventBatch, made: d.Decisions, graph: d.Graph, partition: Partition) -> LogEntry:
    vertex = np.arange(made.counts[d.N_VERTEX])
    vertex = vertex[_is_live(vertex, graph)]
    known = graph.placement.vertex[vertex]
    src = partition.ids.keys.take(known[:, CODE])
    at = made.lists[d.VERTEX_EVENT, vertex]
    return LogEntry(_bare(events, src, at, Element.VERTEX, Op.CREATE), known[:, MASTER_PART])


def _edges(whole: LogEntry, made: d.Decisions, graph: d.Graph, feature: Array) -> LogEntry:
    """Edges in the order they were made, each followed by its features: a copy's are then the newest's."""
    events = whole.events
    adds = kept_adds(made.counts, made.lists, graph.live, graph.placement.vertex)
    at = made.lists[d.ADD_EVENT, adds]
    edges = replace(events.take(at), values=None, value_offsets=None, feature=None, names=())
    edge_entry = LogEntry(edges, whole.part[at])
    n = made.counts[d.N_EDGE_FEATURE]
    if not n or not len(adds):
        return edge_entry
    record, event = made.lists[d.EDGE_FEATURE_RECORD, :n], made.lists[d.EDGE_FEATURE_EVENT, :n]
    kept = made.lists[d.ADD_RECORD, adds]
    add_of = np.full(int(max(record.max(), kept.max(initial=0))) + 1, -1, np.int64)
    add_of[kept] = np.arange(len(adds))
    owner = add_of[record]
    # A record may have served several edges: only what came after the last one was made is this edge's.
    mine = (owner >= 0) & (event >= at[np.maximum(owner, 0)])
    owner, event = owner[mine], event[mine]
    last = _last_of_each(owner, feature[event])
    owner, event = owner[last], event[last]
    feature_events = events.take(event)
    element = np.full(len(event), Element.EDGE_FEATURE, np.int8)
    op = np.where(feature_events.op == Op.DELETE, Op.DELETE, Op.CREATE).astype(np.int8)
    features = LogEntry(replace(feature_events, element=element, op=op), np.full(len(event), -1, np.int32))
    both = join([edge_entry, features])
    order = np.argsort(np.concatenate([np.arange(len(adds)), owner]), kind="stable")
    return LogEntry(both.events.take(order), both.part[order])


def _features(events: EventBatch, made: d.Decisions, graph: d.Graph, feature: Array) -> LogEntry:
    n = made.counts[d.N_FEATURE]
    vertex, event = made.lists[d.FEATURE_VERTEX, :n], made.lists[d.FEATURE_EVENT, :n]
    alive = _is_live(vertex, graph)
    vertex, event = vertex[alive], event[alive]
    event = event[_last_of_each(vertex, feature[event])]
    kept = events.take(event)
    op = np.where(kept.op == Op.DELETE, Op.DELETE, Op.CREATE).astype(np.int8)
    element = np.full(len(event), Element.FEATURE, np.int8)
    return LogEntry(replace(kept, element=element, op=op), np.full(len(event), -1, np.int32))


def _labels(events: EventBatch, graph: d.Graph, partition: Partition) -> LogEntry:
    """Labels that are there; and, as a create and a delete, deleted ones whose time still counts."""
    code = np.flatnonzero(graph.label_state[: len(partition.ids)])
    gone = graph.label_state[code] == 1
    rows = np.repeat(code, np.where(gone, 2, 1))
    second = np.zeros(len(rows), np.bool_)
    second[1:] = rows[1:] == rows[:-1]
    width = graph.label.shape[1]
    lengths = np.where(second, 0, width)
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    batch = EventBatch(
        op=np.where(second, Op.DELETE, Op.CREATE).astype(np.int8),
        element=np.full(len(rows), Element.LABEL, np.int8),
        src=partition.ids.keys.take(rows),
        time=graph.label_time[rows],
        values=graph.label[rows[~second]].reshape(-1),
        value_offsets=offsets,
        arrival=graph.label_time[rows],
    )
    return LogEntry(batch, np.full(len(rows), -1, np.int32))


def _is_live(vertex: Array, graph: d.Graph) -> Array:
    is_live: Array = graph.live[graph.placement.vertex[vertex, CODE]] - 1 == vertex
    return is_live


def _last_of_each(owner: Array, feature: Array) -> Array:
    """Places of the last entry of each (owner, feature), in order."""
    last: dict[tuple[int, int], int] = {
        pair: i for i, pair in enumerate(zip(owner.tolist(), feature.tolist(), strict=True))
    }
    return np.array(sorted(last.values()), np.int64)
