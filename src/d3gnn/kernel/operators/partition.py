"""Partition, the first operator: applies events, partitions the graph, and sends each part its changes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from d3gnn.events import Element, EventBatch, GraphSchema, Op, Reason
from d3gnn.events.check import check, feature_index
from d3gnn.events.check import order as order_of
from d3gnn.events.duration import NEVER
from d3gnn.events.event import NO_TIME
from d3gnn.events.keys import Keys
from d3gnn.kernel.blocks import QUERIES, Block
from d3gnn.kernel.compiled import specialised
from d3gnn.kernel.edge_table import EdgeRecords
from d3gnn.kernel.ids import IdTable
from d3gnn.kernel.log import LogEntry
from d3gnn.kernel.operators.apply_events import apply_events
from d3gnn.kernel.operators.apply_on_threads import SMALLEST, EdgesOnThreads
from d3gnn.kernel.operators.block_builder import BlockBuilder
from d3gnn.kernel.operators.decisions import DecisionRows, make_decisions
from d3gnn.kernel.operators.encode_events import EventEncoder, Events, is_plain
from d3gnn.kernel.operators.expire import Expirer, with_deletes
from d3gnn.kernel.operators.gather import gather_parts
from d3gnn.kernel.operators.graph_state import (
    APPEND,
    MULTI,
    PRESENT,
    SIMPLE,
    Graph,
    GraphState,
    Rules,
)
from d3gnn.kernel.operators.vertex_deletes import deletes_vertices
from d3gnn.kernel.part_state import PartState
from d3gnn.kernel.partitioners import Partitioner, partitioner
from d3gnn.kernel.partitioners.base import (
    LACKING_COUNT,
    LIVE_COUNT,
    MASTER_PART,
    MASTER_ROW,
    PLANNED_EDGES,
    VERTEX_COUNT,
)
from d3gnn.types import Floats, Ints, Ints32, Small
from d3gnn.whole_numbers import check_whole

_NO_ROWS = np.zeros(0, np.int64)


@dataclass(slots=True)
class PartitionedBatch:
    """The result of a batch: blocks to send, the status of each event, and the entry for the log."""

    blocks: list[Block]
    status: Small
    entry: LogEntry
    decisions: DecisionRows
    all_applied: bool

    @property
    def expired(self) -> int:
        """Number of edges and vertices that expired."""
        ttl = self.entry.events.ttl
        return 0 if ttl is None else int(np.count_nonzero(ttl == 0))


class Partition:
    """The one operator that sees all events and knows all ids.

    which:
        The partitioner, or its name.
    destinations:
        Whether vertices send their values to the destinations of edges, too.
    answers_queries:
        Whether the chain scores pairs; if not, queries are dead letters.
    threads:
        Threads that apply large batches of new edges. More than one choose other parts from run to run.
    """

    name = "partition"

    def __init__(
        self,
        schema: GraphSchema,
        parts: int,
        which: str | Partitioner = "hdrf",
        part_state: PartState | None = None,
        destinations: bool = False,
        answers_queries: bool = False,
        threads: int = 1,
    ) -> None:
        check_whole("threads", threads)
        check_whole("parts", parts)
        self.schema, self.parts, self.partitioner = schema, parts, partitioner(which)
        self.part_state = PartState() if part_state is None else part_state
        self.metrics: Counter[str] = Counter()
        self._answers_queries = answers_queries
        self._state = GraphState(self.part_state, schema, parts)
        self._encoder = EventEncoder(self.part_state, schema, self._state.ids)
        self._builder = BlockBuilder(schema, parts, self._state)
        self._apply = specialised(
            apply_events, self.partitioner.name, choose=self.partitioner.choose, place=self.partitioner.place
        )
        expiry = schema.expiry
        self._on_threads = None
        if threads > 1 and parts > 1 and expiry is None:
            self._on_threads = EdgesOnThreads(self.partitioner, parts, threads)
        self._expirer = None if expiry is None else Expirer(expiry, self._state, self._encoder)
        ends = np.cumsum([0, *schema.edge_features.values()])
        rules = Rules(
            mode={"multi": MULTI, "append": APPEND}.get(schema.edges, SIMPLE),
            directed=schema.directed,
            settings=self.partitioner.settings,
            destinations=destinations,
            edge_feature_ends=np.stack([ends[:-1], ends[1:]], 1).astype(np.int64),
            keep_deletes=schema.keep_deletes,
            ttl=0 if expiry is None else expiry.ttl,
            vertex_ttl=0 if expiry is None else expiry.vertex_ttl or 0,
        )
        self._rules = tuple(rules)

    @property
    def ids(self) -> IdTable:
        """Codes of all ids that were ever seen since the last rebuild."""
        return self._state.ids

    @property
    def vertex_count(self) -> int:
        """Number of vertices that exist."""
        return int(self._state.counters[LIVE_COUNT])

    @property
    def lacking(self) -> int:
        """Number of vertices that lack a feature of the schema."""
        return int(self._state.counters[LACKING_COUNT])

    @property
    def created(self) -> tuple[int, int]:
        """Number of vertices and replicas created since the last rebuild, deleted ones included."""
        vertices, replicas, *_ = self._state.counters.tolist()
        return vertices, replicas

    @property
    def replication_factor(self) -> float:
        """Replicas per vertex, over all created since the last rebuild."""
        vertices, replicas = self.created
        return replicas / vertices if vertices else 0.0

    @property
    def types(self) -> tuple[int, int]:
        """Types of ids and of edge keys. They stay fixed, even when all ids and keys are deleted."""
        return self._encoder.types

    @types.setter
    def types(self, types: tuple[int, int]) -> None:
        self._encoder.types = types

    @property
    def watermark(self) -> int:
        """The newest event time so far, by which edges expire; `NO_TIME` if none expires."""
        return NO_TIME if self._expirer is None else self._expirer.watermark

    @watermark.setter
    def watermark(self, time: int) -> None:
        if self._expirer is not None:
            self._expirer.watermark = time

    @property
    def next_expiry(self) -> int:
        """A time of the clock before which nothing expires by it."""
        return NEVER if self._expirer is None else self._expirer.next_expiry()

    def edge_expiry(self) -> Ints:
        """By record of the edge table: when the edge expires, and its lifetime (`EXPIRES`, `TTL`)."""
        return self._state.edges.views().expiry

    def edges(self) -> EdgeRecords:
        """Views of the edge table, whose records hold the features of edges; valid until the next batch."""
        return self._state.edges.views()

    def graph(self) -> Graph:
        """Views of the arrays; valid until the next batch."""
        return self._state.views()

    def locate(self, ids: Keys) -> tuple[Ints32, Ints32]:
        """Part and row of the master of each id; part -1 for ids without a vertex."""
        graph = self.graph()
        codes = self.ids.find(ids)
        vertex = np.where(codes >= 0, graph.live[codes] - 1, -1)
        master = graph.placement.vertex[vertex]
        return np.where(vertex >= 0, master[:, MASTER_PART], -1).astype(np.int32), master[:, MASTER_ROW]

    def live_ids(self) -> Keys:
        """Ids of all vertices that exist, in the order in which the ids were first seen."""
        return self.ids.keys.take(np.flatnonzero(self.graph().live[: len(self.ids)]))

    def labels(self) -> tuple[Keys, Floats]:
        """All ids with a label, and their labels; including those parked until their vertex is created."""
        graph = self.graph()
        codes = np.flatnonzero(graph.label_state[: len(self.ids)] == PRESENT)
        return self.ids.keys.take(codes), graph.label[codes]

    def reset(self) -> None:
        """Clear the graph before a rebuild; the types of ids and edge keys and the watermark stay."""
        types, watermark = self.types, self.watermark
        self.part_state.reset()
        self.types, self.watermark = types, watermark

    def process(
        self, batch: EventBatch, clock: int, replay: Ints32 | None = None, *, keep_order: bool = False
    ) -> PartitionedBatch:
        """Partition a batch. `clock` is the arrival of events that have none.

        With `replay`, the batch is a log entry: its events are valid and in order, and `replay` holds their
        parts. What expired is among its deletes, and the watermark is that of the entry: the host sets it.
        With `keep_order`, it is a log entry, too, whose events are checked and placed again.
        """
        n, arrival = len(batch), _arrival(batch, clock)
        status, order = np.zeros(n, np.int8), None
        feature, queries = status, _NO_ROWS
        plain, in_order = False, False
        if replay is None and self.schema.edges != "keyed":
            plain, in_order = is_plain(batch, arrival, self.schema.longest_ahead)
        if n and not plain:
            feature = feature_index(batch, self.schema)
            if replay is None:
                status = check(batch, self.schema, arrival)
            queries = np.flatnonzero((batch.element == Element.QUERY) & (status == 0))
            status[queries] = Reason.NO_SUCH_VERTEX  # not applied; their status is set after the batch
        if replay is None and not in_order and not keep_order:
            order = order_of(batch)
        events = self._encoder.encode(batch, status, feature, replay, plain, replay is not None or keep_order)
        if self.partitioner.offline and replay is None and not self._state.counters[VERTEX_COUNT]:
            self._plan(events, status)
        self._state.reserve(n, deletes=not plain and deletes_vertices(batch.op, batch.element))
        graph, placement = self._state.plain_views()
        first_vertex, first_replica, *_ = self._state.counters.tolist()
        decisions = make_decisions(n)
        given = (
            np.arange(n) if order is None else order, tuple(events), self._rules, graph, placement,
            tuple(self._state.edges.views()),
        )  # fmt: skip
        if n >= SMALLEST and plain and self._on_threads is not None:
            all_applied = self._on_threads.apply(*given, decisions, status)
        else:
            all_applied = self._apply(*given, *decisions, status)
        expired = None
        if self._expirer is not None and replay is None and not keep_order:
            expired = self._expirer.expire(
                batch.time, status, clock, events, arrival, decisions, first_vertex
            )
        if expired is not None:
            events, decisions = expired.events, expired.decisions
        blocks = self._builder.build(
            decisions, events, arrival if expired is None else expired.arrival, first_vertex, first_replica,
            deletes=not plain or expired is not None,
        )  # fmt: skip
        if replay is None:
            part = np.empty(n, np.int32)
            gather_parts(first_vertex, *decisions, self.graph().placement.vertex, part)
            entry = _log_entry(batch, order, status, arrival, part, all_applied)
            if expired is not None:
                entry = with_deletes(entry, expired.entry)
                self.metrics["expired"] += len(expired.entry)
        else:
            entry = LogEntry(batch, replay)
        if len(queries):
            status[queries] = self._add_queries(blocks, batch, queries, arrival)
        self._count(status, all_applied)
        return PartitionedBatch(blocks, status, entry, decisions, all_applied)

    def plan(self, batch: EventBatch) -> None:
        """Show an offline partitioner a graph, before its events are applied."""
        if self.partitioner.offline:
            status = np.zeros(len(batch), np.int8)
            self._plan(self._encoder.encode(batch, status, status, None, False, True), status)

    def _plan(self, events: Events, status: Small) -> None:
        creates = (events.element == Element.EDGE) & (events.op == Op.CREATE) & (status == 0)
        if self.parts > 1 and creates.any() and not self._state.counters[PLANNED_EDGES]:
            edges = events.src[creates], events.dst[creates]
            planned = self.partitioner.plan(*edges, len(self.ids), self.parts)
            self._state.planned.reserve(len(planned))
            self._state.planned.data[: len(planned)] = planned + 1
            self._state.counters[PLANNED_EDGES] = np.count_nonzero(creates)

    def queries(self, batch: EventBatch, clock: int) -> list[Block]:
        """Blocks for the queries of a batch that was applied before. The log does not hold queries."""
        blocks: list[Block] = []
        arrival = _arrival(batch, clock)
        good = check(batch, self.schema, arrival) == 0
        queries = np.flatnonzero((batch.element == Element.QUERY) & good)
        if len(queries):
            self._add_queries(blocks, batch, queries, arrival)
        return blocks

    def _add_queries(self, blocks: list[Block], batch: EventBatch, queries: Ints, arrival: Ints) -> Small:
        """Request the embeddings of both ends of each query; returns the status of each query."""
        assert batch.dst is not None
        if not self._answers_queries:
            return np.full(len(queries), Reason.NO_ANSWER, np.int8)
        if not (self.ids.keys.accepts(batch.src) and self.ids.keys.accepts(batch.dst)):
            return np.full(len(queries), Reason.WRONG_ID_TYPE, np.int8)
        masters = [self.locate(keys.take(queries)) for keys in (batch.src, batch.dst)]
        (src_part, _), (dst_part, _) = masters
        exist = (src_part >= 0) & (dst_part >= 0)
        part, row = (np.concatenate(both) for both in zip(*masters, strict=True))
        is_second = np.repeat(np.array([0, 1], np.int8), len(queries))
        # The part of the second end answers, since it has one of the two embeddings.
        common = (queries.astype(np.int32), dst_part, batch.time[queries], arrival[queries])
        number, answering, time, both_arrival = (np.tile(column, 2) for column in common)
        columns = (row, number, is_second, answering, time, both_arrival)
        target = np.where(np.tile(exist, 2), part, -1).astype(np.int32)
        self._builder.add_grouped(blocks, QUERIES, target, columns)
        return np.where(exist, Reason.APPLIED, Reason.NO_SUCH_VERTEX).astype(np.int8)

    def _count(self, status: Small, all_applied: bool) -> None:
        metrics = self.metrics
        metrics["events"] += len(status)
        if not all_applied:
            metrics["repeated"] += int(np.count_nonzero(status == Reason.REPEATED))
            metrics["late"] += int(np.count_nonzero(status == Reason.LATE))
            metrics["dead"] += int(np.count_nonzero(status >= Reason.NULL_ID))


def _arrival(batch: EventBatch, clock: int) -> Ints:
    if batch.arrival is None:
        arrival = np.empty(len(batch), np.int64)
        arrival.fill(clock)
        return arrival
    return np.where(batch.arrival == NO_TIME, clock, batch.arrival)


def _log_entry(
    batch: EventBatch, order: Ints | None, status: Small, arrival: Ints, part: Ints32, all_applied: bool
) -> LogEntry:
    """The applied events of a batch, in order."""
    if order is None and all_applied:
        return LogEntry(batch, part, arrival)
    in_order = np.arange(len(batch)) if order is None else order
    applied = in_order[status[in_order] == Reason.APPLIED]
    return LogEntry(batch.take(applied), part[applied], arrival[applied])
