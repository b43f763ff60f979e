"""Partition: order, ids, edge keys, the streaming vertex-cut, masters, replicas; all is decided here."""

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
from d3gnn.kernel.arrays import Space, reserve_all
from d3gnn.kernel.blocks import (
    ADDS,
    DROPS,
    EDGE_VALUES,
    FEATURES,
    LEAVES,
    QUERIES,
    REMOVES,
    REPLICAS,
    SOURCES,
    VERTICES,
    Block,
    Kind,
    key_columns,
)
from d3gnn.kernel.compiled import compiled, inlined, lean
from d3gnn.kernel.edge_table import LOAD, NEXT_EDGE, NEXT_ROW, NEXT_SLOT, PART, SLOT, EdgeTable, U
from d3gnn.kernel.ids import IdTable
from d3gnn.kernel.operators import decide as d
from d3gnn.kernel.partitioners import Partitioner, Placement, partitioner
from d3gnn.kernel.partitioners.base import (
    CODE,
    FIRST_REPLICA,
    MASTER_PART,
    MASTER_ROW,
    NEXT_REPLICA,
    REPLICA_FIELDS,
    REPLICA_PART,
    REPLICA_SLOT,
    VERTEX_FIELDS,
)
from d3gnn.types import INT32, INT64, UINT64, Array, Floats, Hashes, Ints, Ints32, Small

_EMPTY32 = np.zeros(0, np.int32)
_EMPTY64 = np.zeros(0, np.int64)
_NO_VALUES = np.zeros(0, np.float32)
# The space's counters: ids (3), edge keys (3), vertices and replicas, edge table (3), type of edge keys.
_IDS, _KEYS, _GRAPH, _EDGES, _KEY_TYPE = 0, 3, 6, 8, 11
_INT_KEYS, _STRING_KEYS = 1, 2
_HERE = 2


@dataclass(slots=True)
class LogEntry:
    """The events of a batch that changed the graph, in the order they did.

    `part` is the part each went to, or -1. `arrival`, where given, stands for the events' own column.
    """

    events: EventBatch
    part: Ints32
    arrival: Ints | None = None

    def __len__(self) -> int:
        return len(self.part)


@dataclass(slots=True)
class Partitioned:
    """A batch, partitioned: blocks to send, what became of each event, and what goes into the log."""

    blocks: list[Block]
    status: Small
    entry: LogEntry
    decisions: d.Decisions
    first_vertex: int
    clean: bool  # every event was applied


class Partition:
    """The one operator that sees every event, and the only one that knows ids.

    With `destinations`, vertices send values to where edges end as well as to where they begin. `answers` is
    whether there is someone to answer queries.
    """

    name = "partition"

    def __init__(
        self,
        schema: GraphSchema,
        parts: int,
        which: str | Partitioner = "hdrf",
        space: Space | None = None,
        destinations: bool = False,
        answers: bool = False,
    ) -> None:
        if parts < 1:
            raise ValueError(f"parts={parts}: at least 1, please")
        self.schema, self.parts, self.partitioner = schema, parts, partitioner(which)
        self._answers = answers
        self.space = Space() if space is None else space
        self.metrics: Counter[str] = Counter()
        space, counters = self.space, self.space.counters
        self.ids = IdTable(space, "id", _IDS)
        self._edge_keys = IdTable(space, "edge_key", _KEYS)
        width = sum(schema.edge_features.values())
        self._edges = EdgeTable(space, counters[_EDGES : _EDGES + 3], len(schema.edge_features), width)
        self._by_code = [
            space.array("live", np.int32),
            space.array("label_state", np.uint8),
            space.array("label_time", np.int64),
            space.array("label", np.float32, schema.label_width),
        ]
        self._by_vertex = [
            space.array("vertex", np.int32, VERTEX_FIELDS),
            space.array("feature_time", np.int64, len(schema.features)),
            space.array("feature_known", np.uint8, len(schema.features)),
        ]
        self._replica = space.array("replica", np.int32, REPLICA_FIELDS)
        self._parts = space.array("parts", np.int64, parts)
        self._parts.reserve(LOAD + 1)
        ends = np.cumsum([0, *schema.edge_features.values()])
        rules = d.Rules(
            mode={"multi": d.MULTI, "append": d.APPEND}.get(schema.edges, 0),
            directed=schema.directed,
            partitioner=self.partitioner.code,
            first_weight=self.partitioner.weights[0],
            second_weight=self.partitioner.weights[1],
            destinations=destinations,
            edge_feature_ends=np.stack([ends[:-1], ends[1:]], 1).astype(np.int64),
        )
        self._rules = tuple(rules)
        self._score = np.zeros(parts, np.float64)
        self._edge_widths = list(schema.edge_features.values())
        self._no_extents = [0] * parts
        self._generation = -1
        self._reserve(1)

    @property
    def vertex_count(self) -> int:
        """Vertices that exist."""
        return int(np.count_nonzero(self._graph().live[: len(self.ids)]))

    @property
    def made(self) -> tuple[int, int]:
        """Vertices and replicas that were made since the last refresh, also those that are gone."""
        vertices, replicas = self.space.counters[_GRAPH : _GRAPH + 2].tolist()
        return vertices, replicas

    @property
    def replication_factor(self) -> float:
        """Replicas per vertex, over all that were made since the last refresh."""
        vertices, replicas = self.made
        return replicas / vertices if vertices else 0.0

    def locate(self, keys: Keys) -> tuple[Ints32, Ints32]:
        """Part and row of the master of each id; part -1 where there is no such vertex."""
        graph = self._graph()
        codes = self.ids.find(keys)
        vertex = np.where(codes >= 0, graph.live[codes] - 1, -1)
        master = graph.placement.vertex[vertex]
        return np.where(vertex >= 0, master[:, MASTER_PART], -1).astype(np.int32), master[:, MASTER_ROW]

    def live_ids(self) -> Keys:
        """Ids of all vertices that exist, in the order in which their ids were first seen."""
        return self.ids.keys.take(np.flatnonzero(self._graph().live[: len(self.ids)]))

    def process(self, batch: EventBatch, clock: int, replay: Ints32 | None = None) -> Partitioned:
        """Partition a batch. `clock` is the arrival of events that have none.

        With `replay`, the batch is a log entry: its events are good, in order, and have their parts.
        """
        n = len(batch)
        status, order = np.zeros(n, np.int8), None
        feature = status  # of no event
        asked = _EMPTY64
        plain, in_order = False, False
        if replay is None and self.schema.edges != "keyed":
            plain, in_order = _is_plain(batch)
        if n and not plain:
            feature = feature_index(batch, self.schema)
            if replay is None:
                status = check(batch, self.schema)
            asked = np.flatnonzero((batch.element == Element.QUERY) & (status == 0))
            status[asked] = Reason.NO_SUCH_VERTEX  # until the batch has passed, after which they are asked
        if replay is None and not in_order:
            order = order_of(batch)
        arrival = self._arrival(batch, clock)
        events = self._encode(batch, status, feature, replay, plain)
        self._reserve(n)
        graph, records = self._graph(), self._edges.views()
        first_vertex, first_replica = graph.counters.tolist()
        made = d.make_decisions(n)
        clean = d.decide(
            np.arange(n) if order is None else order, tuple(events), self._rules, *self._bare,
            tuple(records), *made, status,
        )  # fmt: skip
        blocks = self._blocks(made, events, arrival, first_vertex, first_replica, deletes=not plain)
        entry = self._entry(batch, order, status, arrival, made, first_vertex, replay, clean)
        if len(asked):
            status[asked] = self._ask(blocks, batch, asked, arrival)
        self._count(status, clean)
        return Partitioned(blocks, status, entry, made, first_vertex, clean)

    def queries(self, batch: EventBatch, clock: int) -> list[Block]:
        """What asks the batch's queries of the graph as it is: for a batch that is in the graph already."""
        blocks: list[Block] = []
        asked = np.flatnonzero((batch.element == Element.QUERY) & (check(batch, self.schema) == 0))
        if len(asked):
            self._ask(blocks, batch, asked, self._arrival(batch, clock))
        return blocks

    def _ask(self, blocks: list[Block], batch: EventBatch, asked: Ints, arrival: Ints) -> Small:
        """Ask both masters of each pair for its value; what becomes of each query."""
        assert batch.dst is not None
        if not self._answers:
            return np.full(len(asked), Reason.NO_ANSWER, np.int8)
        if not (self.ids.keys.accepts(batch.src) and self.ids.keys.accepts(batch.dst)):
            return np.full(len(asked), Reason.WRONG_ID_TYPE, np.int8)
        ends = [self.locate(keys.take(asked)) for keys in (batch.src, batch.dst)]
        (src_part, _), (dst_part, _) = ends
        there = (src_part >= 0) & (dst_part >= 0)
        part, row = (np.concatenate(both) for both in zip(*ends, strict=True))
        is_second = np.repeat(np.array([0, 1], np.int8), len(asked))
        # The part of the second end answers: one of the two is there already.
        same = (asked.astype(np.int32), dst_part, batch.time[asked], arrival[asked])
        number, answering, when, came = (np.tile(column, 2) for column in same)
        columns = (row, number, is_second, answering, when, came)
        self._group(blocks, QUERIES, np.where(np.tile(there, 2), part, -1).astype(np.int32), columns)
        return np.where(there, Reason.APPLIED, Reason.NO_SUCH_VERTEX).astype(np.int8)

    def labels(self) -> tuple[Keys, Floats]:
        """Every id that has a label, also those whose vertex has not come yet, and the labels."""
        graph = self._graph()
        codes = np.flatnonzero(graph.label_state[: len(self.ids)] == 2)
        return self.ids.keys.take(codes), graph.label[codes]

    @property
    def types(self) -> tuple[int, int]:
        """The types of ids and of edge keys, which stay fixed even when no id or key is left."""
        counters = self.space.counters
        return int(counters[_IDS + 2]), int(counters[_KEY_TYPE])

    @types.setter
    def types(self, types: tuple[int, int]) -> None:
        self.space.counters[_IDS + 2], self.space.counters[_KEY_TYPE] = types

    def reset(self) -> None:
        """Forget the graph, for a refresh, but not the types of ids and edge keys."""
        types = self.types
        self.space.reset()
        self.types = types

    # ------------------------------------------------------------------ into codes

    def _encode(
        self, batch: EventBatch, status: Small, feature: Small, replay: Ints32 | None, plain: bool
    ) -> d.Events:
        codes = self._intern_plain(batch.src, batch.dst) if plain else None
        if codes is None:
            codes = self._intern_both(batch, status)
        key = np.zeros(len(batch), np.int64)
        if batch.key is not None and self.schema.edges == "keyed":
            key = self._key_numbers(batch.key, batch, status)
        values, offsets = batch.values, batch.value_offsets
        return d.Events(
            batch.op, batch.element, *codes, key, feature, batch.time,
            _NO_VALUES if values is None else values, _EMPTY64 if offsets is None else offsets,
            _EMPTY32 if replay is None else replay,
        )  # fmt: skip

    def _intern_plain(self, src: Keys, dst: Keys | None) -> tuple[Ints32, Ints32] | None:
        """The codes of ids of the right type, all of which may be new; None for other ids."""
        if dst is None or not self.ids.keys.accepts(src) or type(src) is not type(dst):
            return None
        if not isinstance(src, IntKeys) or not isinstance(dst, IntKeys):
            return self.ids.intern(src), self.ids.intern(dst)
        both = self.ids.intern_ints(np.concatenate((src.values, dst.values)))
        return both[: len(src)], both[len(src) :]

    def _intern_both(self, batch: EventBatch, status: Small) -> tuple[Ints32, Ints32]:
        good = status == 0
        src = self._intern(batch.src, batch, status, good)
        dst = src if batch.dst is None else self._intern(batch.dst, batch, status, good)
        if (src < 0).any() or (dst < 0).any():  # perhaps named by an event that comes later in the columns
            src = self.ids.find(batch.src)
            dst = src if batch.dst is None else self.ids.find(batch.dst)
        return src, dst

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
        return self.ids.intern(keys, make)

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
        return self._edge_keys.intern(keys, used).astype(np.int64)

    def _arrival(self, batch: EventBatch, clock: int) -> Ints:
        if batch.arrival is None:
            arrival = np.empty(len(batch), np.int64)
            arrival.fill(clock)
            return arrival
        return np.where(batch.arrival == NO_TIME, clock, batch.arrival)

    # ------------------------------------------------------------------ room

    def _reserve(self, n: int) -> None:
        vertices, replicas = self.space.counters[_GRAPH : _GRAPH + 2].tolist()
        if len(self.ids) >= len(self._by_code[0].data):
            reserve_all(self._by_code, len(self.ids) + 1)
        if vertices + 2 * n > len(self._by_vertex[0].data):
            reserve_all(self._by_vertex, vertices + 2 * n)
        self._replica.reserve(replicas + 3 * n)
        if self.schema.edges != "append":
            live, vertex = self._by_code[0].data, self._by_vertex[0].data
            self._edges.reserve(n, live, vertex, self._parts.data)

    def _graph(self) -> d.Graph:
        if self._generation != self.space.generation:
            live, label_state, label_time, label = (a.data for a in self._by_code)
            vertex, feature_time, feature_known = (a.data for a in self._by_vertex)
            parts = self._parts.data
            self._views = d.Graph(
                live, self.ids.hashes, label_state, label_time, label, feature_time, feature_known, parts,
                self.space.counters[_GRAPH : _GRAPH + 2],
                Placement(vertex, self._replica.data, parts[LOAD], self._score),
            )  # fmt: skip
            self._bare = tuple(self._views[:-1]), tuple(self._views.placement)
            self._generation = self.space.generation
        return self._views

    # ------------------------------------------------------------------ into blocks

    def _blocks(
        self, made: d.Decisions, events: d.Events, arrival: Ints, first_vertex: int, first_replica: int,
        deletes: bool,
    ) -> list[Block]:  # fmt: skip
        """What a batch does to each part; `deletes` says whether it may take away something it has made."""
        graph, counts, lists, time = self._graph(), made.counts.tolist(), made.lists, events.time
        vertices, replicas = graph.placement.vertex, graph.placement.replica
        blocks: list[Block] = []
        columns: tuple[Array, ...]
        if n := counts[d.N_VERTEX]:
            self._vertex_blocks(blocks, first_vertex, n, lists, time, arrival)
        if n := counts[d.N_REPLICA]:
            ends, columns = self._room(n, INT32, INT32, INT32)
            _gather_replicas(first_replica, n, lists, graph.live, vertices, replicas, ends, *columns)
            self._send(blocks, REPLICAS, ends, columns, graph.parts[NEXT_SLOT])
        if n := counts[d.N_SOURCE]:
            ends, columns = self._room(n, INT32, INT32, INT32)
            _gather_sources(n, lists, graph.live, vertices, replicas, ends, *columns)
            self._send(blocks, SOURCES, ends, columns)
        if n := counts[d.N_DROP]:
            vertex, event = lists[d.DROP_VERTEX, :n], lists[d.DROP_EVENT, :n]
            self._drop_blocks(blocks, vertex, event, time, arrival, first_replica)
        if n := counts[d.N_REMOVE]:
            part, event = lists[d.REMOVE_PART, :n], lists[d.REMOVE_EVENT, :n]
            columns = (lists[d.REMOVE_SLOT, :n], time[event], arrival[event])
            if not self.schema.directed:
                columns, part = _both_ways(columns), _one_way_loops(part, lists[d.REMOVE_LOOP, :n] > 0)
            self._group(blocks, REMOVES, part, columns)
        if counts[d.N_ADD]:
            directed = self.schema.directed
            n = counts[d.N_ADD] if directed else 2 * counts[d.N_ADD]
            ends, columns = self._room(n, INT32, INT32, INT32, INT64, INT64)
            adds = (directed, deletes, *made, graph.live, vertices, replicas)
            _gather_adds(*adds, time, arrival, ends, *columns)
            extents = graph.parts[NEXT_EDGE] if directed else 2 * graph.parts[NEXT_EDGE]
            self._send(blocks, ADDS, ends, columns, extents)
        if n := counts[d.N_EDGE_FEATURE]:
            self._edge_value_blocks(blocks, made, n, events, arrival)
        if n := counts[d.N_FEATURE]:
            vertex, event = lists[d.FEATURE_VERTEX, :n], lists[d.FEATURE_EVENT, :n]
            feature = events.feature[event].astype(np.int32)
            feature = np.where(events.op[event] == Op.DELETE, -1 - feature, feature)
            widest = max(self.schema.features.values())
            values = _padded(event, events.values, events.value_offsets, widest)
            columns = (vertices[vertex, MASTER_ROW], feature, time[event], arrival[event], values)
            self._group(blocks, FEATURES, _alive_masters(vertex, graph.live, vertices), columns)
        return blocks

    def _vertex_blocks(
        self, blocks: list[Block], first: int, n: int, lists: Ints32, time: Ints, arrival: Ints
    ) -> None:
        graph = self._graph()
        vertices, replicas = graph.placement.vertex, graph.placement.replica
        ends, (code, *columns) = self._room(n, INT32, INT32, INT32, UINT64, INT64, INT64)
        _gather_vertices(
            first, n, lists, graph.live, vertices, replicas, graph.hashes, time, arrival, ends, code, *columns
        )
        begin, keys = 0, self.ids.keys.take(code[: ends[-1]])
        if isinstance(keys, IntKeys):
            self._send(blocks, VERTICES, ends, (*columns, keys.values), graph.parts[NEXT_ROW])
            return
        for target, end in enumerate(ends.tolist()[:-1]):
            if end > begin:
                key, blob = key_columns(keys.take(slice(begin, end)))
                mine = (*[column[begin:end] for column in columns], key)
                extent = int(graph.parts[NEXT_ROW, target])
                blocks.append(Block(VERTICES, 0, target, mine, extent, blob=blob))
            begin = end

    def _edge_value_blocks(
        self, blocks: list[Block], made: d.Decisions, n: int, events: d.Events, arrival: Ints
    ) -> None:
        """All features of each edge of which one was set; NaN for those that it lacks."""
        lists, next_edge = made.lists, self._graph().parts[NEXT_EDGE]
        record, event = lists[d.EDGE_FEATURE_RECORD, :n], lists[d.EDGE_FEATURE_EVENT, :n]
        if self.schema.edges == "append":
            add = -1 - record
            part, slot = lists[d.ADD_PART, add], lists[d.ADD_SLOT, add]
            values = self._appended_values(event, events)
        else:
            records = self._edges.views()
            # The last event of each, of those that are still there.
            record, last = np.unique(record[::-1], return_index=True)
            event = event[::-1][last]
            there = records.fields[record, U] >= 0
            record, event = record[there], event[there]
            part, slot = records.fields[record, PART], records.fields[record, SLOT]
            known = np.repeat(records.value_known[record] == _HERE, self._edge_widths, axis=1)
            values = np.where(known, records.value[record], np.float32(np.nan))
        columns: tuple[Array, ...] = (slot, events.time[event], arrival[event], values)
        if not self.schema.directed:
            columns, part = _both_ways(columns), np.repeat(part, 2)
            next_edge = 2 * next_edge
        self._group(blocks, EDGE_VALUES, part, columns, next_edge)

    def _appended_values(self, event: Ints32, events: d.Events) -> Floats:
        values = np.full((len(event), sum(self._edge_widths)), np.nan, np.float32)
        ends = np.cumsum([0, *self._edge_widths])
        for row, (i, f) in enumerate(zip(event.tolist(), events.feature[event].tolist(), strict=True)):
            values[row, ends[f] : ends[f + 1]] = events.values[
                events.value_offsets[i] : events.value_offsets[i + 1]
            ]
        return values

    def _drop_blocks(
        self, blocks: list[Block], vertex: Ints32, event: Ints32, time: Ints, arrival: Ints,
        first_replica: int,
    ) -> None:  # fmt: skip
        graph = self._graph()
        master = graph.placement.vertex[vertex]
        # A vertex that was deleted and made again in one batch has no tombstone: one row per id.
        tombstone = (graph.live[master[:, CODE]] == 0).astype(np.uint8)
        columns: tuple[Array, ...] = (master[:, MASTER_ROW], tombstone, time[event], arrival[event])
        self._group(blocks, DROPS, master[:, MASTER_PART], columns)
        which, replica = _replicas_of(vertex, graph.placement.vertex, graph.placement.replica, first_replica)
        left, event = graph.placement.replica[replica], event[which]
        columns = (left[:, REPLICA_SLOT], time[event], arrival[event])
        self._group(blocks, LEAVES, left[:, REPLICA_PART], columns)

    def _group(
        self, blocks: list[Block], kind: Kind, part: Array, columns: tuple[Array, ...],
        extents: Ints | None = None,
    ) -> None:  # fmt: skip
        """One block for each part that `part` names; rows with part -1 go nowhere."""
        order, ends = _by_part(part, self.parts)
        self._send(blocks, kind, ends, tuple(column[order] for column in columns), extents)

    def _room(self, n: int, *dtypes: np.dtype[Any]) -> tuple[Ints, tuple[Array, ...]]:
        """For a function that gathers rows by part: where each part ends, all zero, and columns to fill."""
        return np.zeros(self.parts + 1, INT64), tuple([np.empty(n, dtype) for dtype in dtypes])

    def _send(
        self, blocks: list[Block], kind: Kind, ends: Ints, columns: tuple[Array, ...],
        extents: Ints | None = None,
    ) -> None:  # fmt: skip
        """One block for each part, of columns that are ordered by part."""
        begin, tops = 0, self._no_extents if extents is None else extents.tolist()
        for target, end in enumerate(ends.tolist()[: self.parts]):
            if end > begin:
                whole = end - begin == len(columns[0])
                mine = columns if whole else tuple([column[begin:end] for column in columns])
                blocks.append(Block(kind, 0, target, mine, tops[target]))
            begin = end

    # ------------------------------------------------------------------ into the log

    def _entry(
        self, batch: EventBatch, order: Ints | None, status: Small, arrival: Ints, made: d.Decisions,
        first_vertex: int, replay: Ints32 | None, clean: bool,
    ) -> LogEntry:  # fmt: skip
        if replay is not None:
            return LogEntry(batch, replay)
        part = np.empty(len(batch), np.int32)
        _parts_of(first_vertex, *made, self._graph().placement.vertex, part)
        events = batch
        if order is not None or not clean:
            in_order = np.arange(len(batch)) if order is None else order
            applied = in_order[status[in_order] == Reason.APPLIED]
            events, part, arrival = batch.take(applied), part[applied], arrival[applied]
        return LogEntry(events, part, arrival)

    def _count(self, status: Small, clean: bool) -> None:
        metrics = self.metrics
        metrics["events"] += len(status)
        if not clean:
            metrics["repeated"] += int(np.count_nonzero(status == Reason.REPEATED))
            metrics["late"] += int(np.count_nonzero(status == Reason.LATE))
            metrics["dead"] += int(np.count_nonzero(status >= Reason.NULL_ID))


def _both_ways(columns: tuple[Array, ...]) -> tuple[Array, ...]:
    """Undirected edges as two directed ones, in slots (the first column) of their own."""
    slot, *rest = (np.repeat(column, 2, axis=0) for column in columns)
    slot *= 2
    slot[1::2] += 1
    return (slot, *rest)


def _one_way_loops(part: Ints32, loop: Array) -> Ints32:
    """The parts of edges that go both ways; a loop goes one way."""
    both = np.repeat(part, 2)
    both[1::2][loop] = -1
    return both


def _is_plain(batch: EventBatch) -> tuple[bool, bool]:
    """Whether every event makes an edge and nothing can be wrong with it in itself; and whether they are
    certain to be in order, then.
    """
    if batch.values is not None or batch.feature is not None or batch.key is not None:
        return False, False
    if batch.src.valid is not None or batch.dst is None or batch.dst.valid is not None:
        return False, False
    plain, rises = _all_edges(batch.op, batch.element, batch.time)
    return plain, rises and batch.arrival is batch.partition is batch.offset is None


_EDGE, _CREATE = int(Element.EDGE), int(Op.CREATE)


@lean
def _all_edges(op: Small, element: Small, time: Ints) -> tuple[bool, bool]:
    """Whether all are new edges; and whether their times never fall."""
    rises = True
    for i in range(len(op)):
        if element[i] != _EDGE or op[i] != _CREATE or time[i] == NO_TIME:
            return False, False
        rises &= i == 0 or time[i] >= time[i - 1]
    return True, rises


@lean
def _parts_of(first_vertex: int, counts: Ints, lists: Ints32, vertices: Ints32, part: Ints32) -> None:
    """The part that each event went to, or -1."""
    for i in range(len(part)):
        part[i] = -1
    for i in range(counts[d.N_VERTEX]):
        part[lists[d.VERTEX_EVENT, i]] = vertices[first_vertex + i, MASTER_PART]
    for i in range(counts[d.N_ADD]):
        part[lists[d.ADD_EVENT, i]] = lists[d.ADD_PART, i]


@inlined
def _alive_master(v: int, live: Ints32, vertices: Ints32) -> int:
    """The part of a vertex's master; -1 for one that is gone by the end of the batch."""
    return vertices[v, MASTER_PART] if live[vertices[v, CODE]] - 1 == v else -1


@compiled
def _alive_masters(vertex: Array, live: Ints32, vertices: Ints32) -> Ints32:
    """The part of each vertex's master; -1 for vertices that are gone by the end of the batch."""
    part = np.empty(len(vertex), np.int32)
    for i in range(len(vertex)):
        part[i] = _alive_master(vertex[i], live, vertices)
    return part


@compiled
def kept_adds(counts: Ints, lists: Ints32, live: Ints32, vertices: Ints32) -> Ints:
    """Which of the added edges are there at the end of the batch."""
    kept = [i for i in range(counts[d.N_ADD]) if _is_kept(i, lists, live, vertices)]
    return np.array(kept, np.int64)


@inlined
def _is_kept(i: int, lists: Ints32, live: Ints32, vertices: Ints32) -> bool:
    u, v = lists[d.ADD_U, i], lists[d.ADD_V, i]
    alive = live[vertices[u, CODE]] - 1 == u and live[vertices[v, CODE]] - 1 == v
    return bool(alive and lists[d.ADD_RECORD, i] != -1)


@lean
def _gather_adds(
    directed: bool, deletes: bool, counts: Ints, lists: Ints32, live: Ints32, vertices: Ints32,
    replicas: Ints32, time: Ints, arrival: Ints,
    ends: Ints, slot: Ints32, src: Ints32, dst: Ints32, when: Ints, came: Ints,
) -> None:  # fmt: skip
    """Fill the columns with added edges, by part; an undirected edge is two directed ones.

    `ends` comes in with zeros, one more than there are parts, and says where each part ends.
    """
    for i in range(counts[d.N_ADD]):
        if not deletes or _is_kept(i, lists, live, vertices):
            loop = lists[d.ADD_U, i] == lists[d.ADD_V, i]
            ends[lists[d.ADD_PART, i] + 1] += 1 if directed or loop else 2
    _add_up(ends)
    for i in range(counts[d.N_ADD]):
        if deletes and not _is_kept(i, lists, live, vertices):
            continue
        p, event = lists[d.ADD_PART, i], lists[d.ADD_EVENT, i]
        u = replicas[lists[d.ADD_U_REPLICA, i], REPLICA_SLOT]
        v = replicas[lists[d.ADD_V_REPLICA, i], REPLICA_SLOT]
        for way in range(1 if directed or u == v else 2):
            at = ends[p]  # where the part begins, and where it ends when all of it is there
            ends[p] += 1
            slot[at] = lists[d.ADD_SLOT, i] if directed else 2 * lists[d.ADD_SLOT, i] + way
            src[at], dst[at] = (u, v) if way == 0 else (v, u)
            when[at], came[at] = time[event], arrival[event]


@lean
def _gather_vertices(
    first: int, n: int, lists: Ints32, live: Ints32, vertices: Ints32, replicas: Ints32, hashes: Hashes,
    time: Ints, arrival: Ints,
    ends: Ints, code: Ints32, row: Ints32, slot: Ints32, seed: Hashes, when: Ints, came: Ints,
) -> None:  # fmt: skip
    """Fill the columns with new vertices, by their masters' parts; `ends` as for `_gather_adds`."""
    for v in range(first, first + n):
        ends[_alive_master(v, live, vertices) + 1] += 1
    _add_up(ends)
    for i in range(n):
        v, event = first + i, lists[d.VERTEX_EVENT, i]
        p = _alive_master(v, live, vertices)
        if p < 0:
            continue
        at = ends[p]
        ends[p] += 1
        code[at], row[at], seed[at] = vertices[v, CODE], vertices[v, MASTER_ROW], hashes[vertices[v, CODE]]
        when[at], came[at] = time[event], arrival[event]
        replica = vertices[v, FIRST_REPLICA] - 1
        while replicas[replica, REPLICA_PART] != p:
            replica = replicas[replica, NEXT_REPLICA] - 1
        slot[at] = replicas[replica, REPLICA_SLOT]


@lean
def _gather_replicas(
    first: int, n: int, lists: Ints32, live: Ints32, vertices: Ints32, replicas: Ints32,
    ends: Ints, slot: Ints32, master: Ints32, row: Ints32,
) -> None:  # fmt: skip
    """Fill the columns with new replicas of vertices that are there, by part; `ends` likewise."""
    for i in range(n):
        alive = _alive_master(lists[d.REPLICA_VERTEX, i], live, vertices) >= 0
        ends[replicas[first + i, REPLICA_PART] + 1 if alive else 0] += 1
    _add_up(ends)
    for i in range(n):
        v, p = lists[d.REPLICA_VERTEX, i], replicas[first + i, REPLICA_PART]
        if _alive_master(v, live, vertices) >= 0:
            at = ends[p]
            ends[p] += 1
            slot[at], master[at] = replicas[first + i, REPLICA_SLOT], vertices[v, MASTER_PART]
            row[at] = vertices[v, MASTER_ROW]


@lean
def _gather_sources(
    n: int, lists: Ints32, live: Ints32, vertices: Ints32, replicas: Ints32,
    ends: Ints, row: Ints32, part: Ints32, slot: Ints32,
) -> None:  # fmt: skip
    """Fill the columns with replicas that are sources now, by their masters' parts; `ends` likewise."""
    for i in range(n):
        ends[_alive_master(lists[d.SOURCE_VERTEX, i], live, vertices) + 1] += 1
    _add_up(ends)
    for i in range(n):
        v, replica = lists[d.SOURCE_VERTEX, i], lists[d.SOURCE_REPLICA, i]
        p = _alive_master(v, live, vertices)
        if p >= 0:
            at = ends[p]
            ends[p] += 1
            row[at] = vertices[v, MASTER_ROW]
            part[at], slot[at] = replicas[replica, REPLICA_PART], replicas[replica, REPLICA_SLOT]


@inlined
def _add_up(ends: Ints) -> None:
    """From how many there are of each part, after those of none, to where each part begins."""
    ends[0] = 0
    for p in range(1, len(ends)):
        ends[p] += ends[p - 1]


@compiled
def _replicas_of(vertex: Ints32, vertices: Ints32, replicas: Ints32, below: int) -> tuple[Ints, Ints]:
    """Every replica of the vertices that was there before the batch: whose, and which."""
    count = 0
    for v in vertex:
        at = vertices[v, FIRST_REPLICA] - 1
        while at >= 0:
            count += 1 if at < below else 0
            at = replicas[at, NEXT_REPLICA] - 1
    which, replica = np.empty(count, np.int64), np.empty(count, np.int64)
    count = 0
    for i in range(len(vertex)):
        at = vertices[vertex[i], FIRST_REPLICA] - 1
        while at >= 0:
            if at < below:
                which[count], replica[count] = i, at
                count += 1
            at = replicas[at, NEXT_REPLICA] - 1
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
