"""Partition: order, ids, edge keys, the streaming vertex-cut, masters and replicas; all decisions are made here."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from d3gnn.events import (
    NO_TIME,
    Element,
    EventBatch,
    GraphSchema,
    IntKeys,
    Keys,
    Op,
    Reason,
    check,
    feature_index,
)
from d3gnn.events import order as order_of
from d3gnn.kernel.arrays import Space
from d3gnn.kernel.blocks import Block, Kind, key_columns
from d3gnn.kernel.compiled import compiled
from d3gnn.kernel.edge_table import EdgeTable
from d3gnn.kernel.ids import IdTable
from d3gnn.kernel.operators import decide as d
from d3gnn.kernel.partitioners import Partitioner, Placement, partitioner
from d3gnn.types import Array, Floats, Ints, Ints32, Small

_EMPTY32 = np.zeros(0, np.int32)
_EMPTY64 = np.zeros(0, np.int64)
_NO_VALUES = np.zeros(0, np.float32)
# The space's counters: ids (3), edge keys (3), vertices and replicas, edge table (2), type of edge keys.
_IDS, _KEYS, _GRAPH, _EDGES, _KEY_TYPE = 0, 3, 6, 8, 10
_INT_KEYS, _STRING_KEYS = 1, 2


@dataclass(frozen=True, slots=True)
class LogEntry:
    """The events of a batch that changed the graph, in the order they did, with the part each went to (or -1)."""

    events: EventBatch
    part: Ints32

    def __len__(self) -> int:
        return len(self.part)


@dataclass(frozen=True, slots=True)
class Partitioned:
    """A batch, partitioned: blocks to send, what became of each event, and what goes into the log."""

    blocks: list[Block]
    status: Small
    entry: LogEntry
    decisions: d.Decisions
    first_vertex: int


class Partition:
    """The one operator that sees every event, and the only one that knows ids."""

    name = "partition"

    def __init__(
        self, schema: GraphSchema, parts: int, which: str | Partitioner = "hdrf", space: Space | None = None
    ) -> None:
        if parts < 1:
            raise ValueError(f"parts={parts}: at least 1, please")
        self.schema, self.parts, self.partitioner = schema, parts, partitioner(which)
        self.space = Space() if space is None else space
        self.metrics: Counter[str] = Counter()
        space, counters = self.space, self.space.counters
        self.ids = IdTable(space, "id", _IDS)
        self._edge_keys = IdTable(space, "edge_key", _KEYS)
        width = sum(schema.edge_features.values())
        self._edges = EdgeTable(space, counters[_EDGES : _EDGES + 2], len(schema.edge_features), width)
        self._by_code = [
            space.array("live", np.int32),
            space.array("label_state", np.uint8),
            space.array("label_time", np.int64),
            space.array("label", np.float32, schema.label_width),
        ]
        self._by_vertex = [
            space.array("code", np.int32),
            space.array("master", np.int32, 2),
            space.array("feature_time", np.int64, len(schema.features)),
            space.array("feature_known", np.uint8, len(schema.features)),
            space.array("replicas", np.int32),
            space.array("degree", np.int32),
        ]
        self._by_replica = [
            space.array("replica_part", np.int32),
            space.array("replica_next", np.int32),
            space.array("replica_slot", np.int32),
            space.array("replica_source", np.uint8),
        ]
        # By part: next row, next slot, next edge slot, first free edge record plus 1, load.
        self._by_part = space.array("by_part", np.int64, parts)
        self._by_part.reserve(5)
        ends = np.cumsum([0, *schema.edge_features.values()])
        self._rules = d.Rules(
            mode={"multi": d.MULTI, "append": d.APPEND}.get(schema.edges, 0),
            directed=schema.directed,
            partitioner=self.partitioner.code,
            first_weight=self.partitioner.weights[0],
            second_weight=self.partitioner.weights[1],
            edge_feature_ends=np.stack([ends[:-1], ends[1:]], 1).astype(np.int64),
        )
        self._score = np.zeros(parts, np.float64)
        self._generation = -1
        self._reserve(1)

    @property
    def vertex_count(self) -> int:
        """Vertices that exist."""
        return int(np.count_nonzero(self._graph().live[: len(self.ids)]))

    @property
    def replication_factor(self) -> float:
        """Replicas per vertex, over all that were made since the last refresh."""
        vertices, replicas = self.space.counters[_GRAPH : _GRAPH + 2]
        return float(replicas / vertices) if vertices else 0.0

    def locate(self, keys: Keys) -> tuple[Ints32, Ints32]:
        """Part and row of the master of each id; part -1 where there is no such vertex."""
        graph = self._graph()
        codes = self.ids.find(keys)
        vertex = np.where(codes >= 0, graph.live[codes] - 1, -1)
        part, row = graph.master[vertex].T
        return np.where(vertex >= 0, part, -1).astype(np.int32), row

    def live_ids(self) -> Keys:
        """Ids of all vertices that exist, in the order in which their ids were first seen."""
        return self.ids.keys.take(np.flatnonzero(self._graph().live[: len(self.ids)]))

    def process(self, batch: EventBatch, clock: int, replay: Ints32 | None = None) -> Partitioned:
        """Partition a batch. `clock` is the arrival of events that have none.

        With `replay`, the batch is a log entry: its events are good, in order, and have their parts.
        """
        n = len(batch)
        status, order = np.zeros(n, np.int8), None
        feature: Small = status
        if replay is not None:
            feature = feature_index(batch, self.schema)
        elif not (batch.values is None and batch.key is None and _is_plain(batch)):
            status = check(batch, self.schema)
            feature = feature_index(batch, self.schema)
            order = order_of(batch)
        elif not _in_order(batch.time) or batch.arrival is not None:
            order = order_of(batch)
        if order is None:
            order = np.arange(n)
        arrival = self._arrival(batch, clock)
        events = self._encode(batch, status, feature, replay)
        self._reserve(n)
        graph, records = self._graph(), self._edges.views()
        first_vertex, first_replica = (int(c) for c in graph.counters)
        made = d.make_decisions(n)
        d.decide(order, events, self._rules, graph, records, made, status)
        blocks = self._blocks(made, events, arrival, graph, first_vertex, first_replica)
        entry = self._entry(batch, order, status, arrival, made, graph, first_vertex, replay)
        self._count(status)
        return Partitioned(blocks, status, entry, made, first_vertex)

    def edge_value(self, record: int) -> Floats:
        """All features of the edge behind a record, side by side."""
        return self._edges.views().value[record]

    def labels(self) -> tuple[Keys, Floats]:
        """Every id that has a label, also those whose vertex has not come yet, and the labels."""
        graph = self._graph()
        codes = np.flatnonzero(graph.label_state[: len(self.ids)] == 2)
        return self.ids.keys.take(codes), graph.label[codes]

    def reset(self) -> None:
        """Forget the graph, for a refresh."""
        self.space.reset()

    # ------------------------------------------------------------------ into codes

    def _encode(self, batch: EventBatch, status: Small, feature: Small, replay: Ints32 | None) -> d.Events:
        good = status == 0
        src = self._intern(batch.src, batch, status, good)
        dst = src if batch.dst is None else self._intern(batch.dst, batch, status, good)
        if (src < 0).any() or (dst < 0).any():  # perhaps named by an event that comes later in the columns
            src = self.ids.find(batch.src)
            dst = src if batch.dst is None else self.ids.find(batch.dst)
        key = np.zeros(len(batch), np.int64)
        if batch.key is not None and self.schema.edges == "keyed":
            key = self._key_numbers(batch.key, batch, status)
        values, offsets = batch.values, batch.value_offsets
        return d.Events(
            batch.op, batch.element, src, dst, key, feature, batch.time,
            _NO_VALUES if values is None else values, _EMPTY64 if offsets is None else offsets,
            _EMPTY32 if replay is None else replay,
        )  # fmt: skip

    def _intern(self, keys: Keys, batch: EventBatch, status: Small, good: Array) -> Ints32:
        if not self.ids.keys.accepts(keys):
            mistyped = good & (status == 0)
            if keys is batch.dst:
                mistyped &= (batch.element == Element.EDGE) | (batch.element == Element.EDGE_FEATURE)
            status[mistyped] = Reason.WRONG_ID_TYPE
            return np.full(len(keys), -1, np.int32)
        # Only events that can make a vertex, or park a label, may make an id known.
        good = good & (status == 0)
        self.ids.keys.fix_type(keys, good)
        make = good & (batch.op != Op.DELETE)
        return self.ids.intern(keys, make)[0]

    def _key_numbers(self, keys: Keys, batch: EventBatch, status: Small) -> Ints:
        is_int = isinstance(keys, IntKeys)
        mine = _INT_KEYS if is_int else _STRING_KEYS
        counters = self.space.counters
        is_edge = (batch.element == Element.EDGE) | (batch.element == Element.EDGE_FEATURE)
        used = (status == 0) & is_edge
        if counters[_KEY_TYPE] not in (0, mine):
            status[used] = Reason.WRONG_ID_TYPE
            return np.zeros(len(keys), np.int64)
        if used.any():
            counters[_KEY_TYPE] = mine
        if isinstance(keys, IntKeys):
            return keys.values
        return self._edge_keys.intern(keys, used)[0].astype(np.int64)

    def _arrival(self, batch: EventBatch, clock: int) -> Ints:
        if batch.arrival is None:
            return np.full(len(batch), clock, np.int64)
        return np.where(batch.arrival == NO_TIME, clock, batch.arrival)

    # ------------------------------------------------------------------ room

    def _reserve(self, n: int) -> None:
        counters = self.space.counters
        vertices, replicas = (int(c) for c in counters[_GRAPH : _GRAPH + 2])
        for array in self._by_code:
            array.reserve(len(self.ids) + 1)
        if vertices + 2 * n > len(self._by_vertex[0].data):
            for array in self._by_vertex:
                array.reserve(vertices + 2 * n)
        if replicas + 3 * n > len(self._by_replica[0].data):
            for array in self._by_replica:
                array.reserve(replicas + 3 * n)
        if self.schema.edges != "append":
            by_part = self._by_part.data
            self._edges.reserve(n, self._by_code[0].data, self._by_vertex[0].data, by_part[3])

    def _graph(self) -> d.Graph:
        if self._generation != self.space.generation:
            live, label_state, label_time, label = (a.data for a in self._by_code)
            code, master, feature_time, feature_known, replicas, degree = (a.data for a in self._by_vertex)
            part, following, slot, source = (a.data for a in self._by_replica)
            next_row, next_slot, next_edge, free, load = self._by_part.data[:5]
            self._views = d.Graph(
                live, self.ids.hashes, label_state, label_time, label, code, master, feature_time,
                feature_known, Placement(replicas, part, following, degree, load, self._score), slot, source,
                next_row, next_slot, next_edge, free, self.space.counters[_GRAPH : _GRAPH + 2],
            )  # fmt: skip
            self._generation = self.space.generation
        return self._views

    # ------------------------------------------------------------------ into blocks

    def _blocks(
        self, made: d.Decisions, events: d.Events, arrival: Ints, graph: d.Graph, first_vertex: int,
        first_replica: int,
    ) -> list[Block]:  # fmt: skip
        blocks: list[Block] = []
        counts, time = made.counts, events.time
        if counts[d.N_VERTEX]:
            vertex = np.arange(first_vertex, first_vertex + counts[d.N_VERTEX], dtype=np.int32)
            part = _alive_masters(vertex, graph)
            event = made.vertex_event[: len(vertex)]
            code = graph.code[vertex]
            columns = (
                graph.master[vertex, 1], _own_slots(vertex, graph), graph.hashes[code], time[event],
                arrival[event],
            )  # fmt: skip
            self._group_vertices(blocks, part, columns, code, graph.next_row)
        if counts[d.N_REPLICA]:
            vertex = made.replica_vertex[: counts[d.N_REPLICA]]
            replica = np.arange(first_replica, first_replica + len(vertex))
            part = np.where(_alive_masters(vertex, graph) >= 0, graph.placement.replica_part[replica], -1)
            master = graph.master[vertex]
            columns = (graph.replica_slot[replica], master[:, 0], master[:, 1])
            self._group(blocks, Kind.REPLICAS, part, columns, graph.next_slot)
        if counts[d.N_SOURCE]:
            vertex = made.source_vertex[: counts[d.N_SOURCE]]
            replica = made.source_replica[: len(vertex)]
            columns = (
                graph.master[vertex, 1], graph.placement.replica_part[replica], graph.replica_slot[replica],
            )  # fmt: skip
            self._group(blocks, Kind.SOURCES, _alive_masters(vertex, graph), columns)
        if counts[d.N_DROP]:
            self._drop_blocks(blocks, made, time, arrival, graph)
        if counts[d.N_REMOVE]:
            n = counts[d.N_REMOVE]
            part, slot, event = made.remove_part[:n], made.remove_slot[:n], made.remove_event[:n]
            columns = (slot, time[event], arrival[event])
            if not self.schema.directed:
                columns, part = _both_ways(columns), _one_way_loops(part, made.remove_loop[:n] > 0)
            self._group(blocks, Kind.REMOVES, part, columns)
        if counts[d.N_ADD]:
            self._add_blocks(blocks, made, time, arrival, graph)
        if counts[d.N_FEATURE]:
            vertex = made.feature_vertex[: counts[d.N_FEATURE]]
            event = made.feature_event[: len(vertex)]
            widest = max(self.schema.features.values())
            feature = events.feature[event].astype(np.int32)
            feature = np.where(events.op[event] == Op.DELETE, -1 - feature, feature)
            values = _padded(event, events.values, events.value_offsets, widest)
            columns = (graph.master[vertex, 1], feature, time[event], arrival[event], values)
            self._group(blocks, Kind.FEATURES, _alive_masters(vertex, graph), columns)
        return blocks

    def _add_blocks(
        self, blocks: list[Block], made: d.Decisions, time: Ints, arrival: Ints, graph: d.Graph
    ) -> None:
        n = int(made.counts[d.N_ADD])
        part = _kept_adds(n, made, graph)
        event = made.add_event[:n]
        src, dst = graph.replica_slot[made.add_u_replica[:n]], graph.replica_slot[made.add_v_replica[:n]]
        columns = (made.add_slot[:n], src, dst, time[event], arrival[event])
        extents = graph.next_edge
        if not self.schema.directed:
            columns, part = _both_ways(columns), _one_way_loops(part, src == dst)
            columns[1][1::2], columns[2][1::2] = dst, src
            extents = 2 * extents
        self._group(blocks, Kind.ADDS, part, columns, extents)

    def _drop_blocks(
        self, blocks: list[Block], made: d.Decisions, time: Ints, arrival: Ints, graph: d.Graph
    ) -> None:
        vertex = made.drop_vertex[: made.counts[d.N_DROP]]
        event = made.drop_event[: len(vertex)]
        # A vertex that was deleted and made again in one batch has no tombstone: one row per id.
        tombstone = (graph.live[graph.code[vertex]] == 0).astype(np.uint8)
        part, row = graph.master[vertex].T
        self._group(blocks, Kind.DROPS, part, (row.copy(), tombstone, time[event], arrival[event]))
        which, replica = _replicas_of(vertex, graph)
        event = event[which]
        columns = (graph.replica_slot[replica], time[event], arrival[event])
        self._group(blocks, Kind.LEAVES, graph.placement.replica_part[replica], columns)

    def _group_vertices(
        self, blocks: list[Block], part: Ints32, columns: tuple[Array, ...], code: Ints32, extents: Ints
    ) -> None:
        order, ends = _by_part(part, self.parts)
        begin = 0
        for target in range(self.parts):
            end = int(ends[target])
            if end > begin:
                mine = order[begin:end]
                key, blob = key_columns(self.ids.keys.take(code[mine]))
                picked = (*(c[mine] for c in columns), key)
                extent = int(extents[target])
                blocks.append(Block(Kind.VERTICES, 0, target, picked, extent, blob=blob))
            begin = end

    def _group(
        self, blocks: list[Block], kind: Kind, part: Array, columns: tuple[Array, ...],
        extents: Ints | None = None,
    ) -> None:  # fmt: skip
        """One block for each part that `part` names; rows with part -1 go nowhere."""
        order, ends = _by_part(part, self.parts)
        begin = 0
        for target in range(self.parts):
            end = int(ends[target])
            if end > begin:
                picked = columns
                if end - begin != len(part):
                    picked = tuple(c[order[begin:end]] for c in columns)
                extent = 0 if extents is None else int(extents[target])
                blocks.append(Block(kind, 0, target, picked, extent))
            begin = end

    # ------------------------------------------------------------------ into the log

    def _entry(
        self, batch: EventBatch, order: Ints, status: Small, arrival: Ints, made: d.Decisions,
        graph: d.Graph, first_vertex: int, replay: Ints32 | None,
    ) -> LogEntry:  # fmt: skip
        if replay is not None:
            return LogEntry(batch, replay)
        part = np.full(len(batch), -1, np.int32)
        n = made.counts[d.N_VERTEX]
        part[made.vertex_event[:n]] = graph.master[first_vertex : first_vertex + n, 0]
        n = made.counts[d.N_ADD]
        part[made.add_event[:n]] = made.add_part[:n]
        applied = order[status[order] == Reason.APPLIED]
        if len(applied) == len(batch) and bool((applied[1:] > applied[:-1]).all()):
            events = batch
        else:
            events, part, arrival = batch.take(applied), part[applied], arrival[applied]
        return LogEntry(_with_arrival(events, arrival), part)

    def _count(self, status: Small) -> None:
        metrics, n = self.metrics, len(status)
        metrics["events"] += n
        if status.any():
            metrics["repeated"] += int(np.count_nonzero(status == Reason.REPEATED))
            metrics["late"] += int(np.count_nonzero(status == Reason.LATE))
            metrics["dead"] += int(np.count_nonzero(status >= Reason.NULL_ID))


def _with_arrival(events: EventBatch, arrival: Ints) -> EventBatch:
    return EventBatch(
        events.op, events.element, events.src, events.time, events.dst, events.key, events.feature, events.names,
        events.values, events.value_offsets, arrival,
    )  # fmt: skip


def _both_ways(columns: tuple[Array, ...]) -> tuple[Array, ...]:
    """Undirected edges as two directed ones, in slots (the first column) of their own."""
    slot, *rest = (np.repeat(column, 2) for column in columns)
    slot *= 2
    slot[1::2] += 1
    return (slot, *rest)


def _one_way_loops(part: Ints32, loop: Array) -> Ints32:
    """The parts of edges that go both ways; a loop goes one way."""
    both = np.repeat(part, 2)
    both[1::2][loop] = -1
    return both


def _is_plain(batch: EventBatch) -> bool:
    """Whether nothing can be wrong with any event of the batch in itself: edges made or removed, all columns set."""
    if batch.src.valid is not None or batch.dst is None or batch.dst.valid is not None:
        return False
    return batch.feature is None and _all_edges(batch.op, batch.element, batch.time)


_EDGE, _CREATE = int(Element.EDGE), int(Op.CREATE)


@compiled
def _all_edges(op: Small, element: Small, time: Ints) -> bool:
    for i in range(len(op)):  # noqa: SIM110  # compiled
        if element[i] != _EDGE or op[i] != _CREATE or time[i] == NO_TIME:
            return False
    return True


@compiled
def _in_order(time: Ints) -> bool:
    for i in range(1, len(time)):  # noqa: SIM110  # compiled
        if time[i] < time[i - 1]:
            return False
    return True


@compiled
def _alive_masters(vertex: Ints32, graph: d.Graph) -> Ints32:
    """The part of each vertex's master; -1 for vertices that are gone by the end of the batch."""
    part = np.empty(len(vertex), np.int32)
    for i in range(len(vertex)):
        v = vertex[i]
        part[i] = graph.master[v, 0] if graph.live[graph.code[v]] - 1 == v else -1
    return part


@compiled
def _kept_adds(n: int, made: d.Decisions, graph: d.Graph) -> Ints32:
    part = np.empty(n, np.int32)
    for i in range(n):
        u, v = made.add_u[i], made.add_v[i]
        kept = graph.live[graph.code[u]] - 1 == u and graph.live[graph.code[v]] - 1 == v
        part[i] = made.add_part[i] if kept and made.add_record[i] != -1 else -1
    return part


@compiled
def _own_slots(vertex: Ints32, graph: d.Graph) -> Ints32:
    slots = np.empty(len(vertex), np.int32)
    for i in range(len(vertex)):
        at = graph.placement.replicas[vertex[i]] - 1
        while graph.placement.replica_part[at] != graph.master[vertex[i], 0]:
            at = graph.placement.replica_next[at] - 1
        slots[i] = graph.replica_slot[at]
    return slots


@compiled
def _replicas_of(vertex: Ints32, graph: d.Graph) -> tuple[Ints, Ints]:
    """Every replica of the vertices: whose, and which."""
    count = 0
    for v in vertex:
        at = graph.placement.replicas[v] - 1
        while at >= 0:
            count += 1
            at = graph.placement.replica_next[at] - 1
    which, replica = np.empty(count, np.int64), np.empty(count, np.int64)
    count = 0
    for i in range(len(vertex)):
        at = graph.placement.replicas[vertex[i]] - 1
        while at >= 0:
            which[count], replica[count] = i, at
            count += 1
            at = graph.placement.replica_next[at] - 1
    return which, replica


@compiled
def _by_part(part: Ints32, parts: int) -> tuple[Ints, Ints]:
    """Places in the order of their parts, and where each part ends; part -1 is left out."""
    ends = np.zeros(parts + 1, np.int64)
    for p in part:
        ends[p + 1] += 1
    ends[0] = 0
    for p in range(parts):
        ends[p + 1] += ends[p]
    order = np.empty(ends[parts], np.int64)
    at = ends[:parts].copy()
    for i in range(len(part)):
        p = part[i]
        if p >= 0:
            order[at[p]] = i
            at[p] += 1
    return order, ends[1:]


@compiled
def _padded(event: Ints32, values: Floats, offsets: Ints, width: int) -> Any:
    out = np.zeros((len(event), width), np.float32)
    if len(offsets):
        for i in range(len(event)):
            begin, end = offsets[event[i]], offsets[event[i] + 1]
            out[i, : end - begin] = values[begin:end]
    return out
