"""From the decisions of a batch to blocks, one per kind and receiving part."""

from __future__ import annotations

from typing import Any

import numpy as np

from d3gnn.events import GraphSchema, Op
from d3gnn.events.keys import IntKeys
from d3gnn.kernel.blocks import (
    EDGE_ADDS,
    EDGE_DELETES,
    EDGE_VALUES,
    FEATURES,
    LABELS,
    NO_TOMBSTONE,
    REPLICA_DELETES,
    REPLICAS,
    SOURCES,
    SURE_TOMBSTONE,
    TOMBSTONE,
    VERTEX_DELETES,
    VERTICES,
    Block,
    BlockKind,
    key_columns,
    spans,
)
from d3gnn.kernel.edge_table import NEXT_EDGE, NEXT_ROW, NEXT_SLOT, PART, SLOT, U
from d3gnn.kernel.operators.decisions import (
    N_ADDS,
    N_EDGE_FEATURES,
    N_FEATURES,
    N_LABELS,
    N_REMOVES,
    N_REPLICAS,
    N_SOURCES,
    N_VERTEX_DELETES,
    N_VERTICES,
    DecisionRows,
    EdgeFeatureUpdates,
    FeatureUpdates,
    LabelUpdates,
    Removes,
    VertexDeletes,
)
from d3gnn.kernel.operators.encode_events import Events
from d3gnn.kernel.operators.gather import (
    gather_adds,
    gather_replicas,
    gather_sources,
    gather_vertices,
    group_by_part,
    live_parts,
    padded_values,
    replicas_of,
)
from d3gnn.kernel.operators.graph_state import DELETED, PRESENT, GraphState
from d3gnn.kernel.partitioners.base import CODE, MASTER_PART, MASTER_ROW, REPLICA_PART, REPLICA_SLOT
from d3gnn.types import INT32, INT64, UINT64, Array, Ints, Ints32

_NAN = np.float32(np.nan)


class BlockBuilder:
    """Builds the blocks that Partition sends."""

    def __init__(self, schema: GraphSchema, parts: int, state: GraphState) -> None:
        self._parts, self._state, self._directed = parts, state, schema.directed
        self._edge_widths = list(schema.edge_features.values())
        self._widest_feature = max(schema.features.values(), default=0)
        self._no_extents = [0] * parts

    def build(
        self, decisions: DecisionRows, events: Events, arrival: Ints, first_vertex: int, first_replica: int,
        deletes: bool,
    ) -> list[Block]:  # fmt: skip
        """Blocks of a batch. Numbers of its new vertices and replicas start at `first_vertex` and
        `first_replica`; `deletes` is whether it may have deleted edges that it created.
        """
        graph, counts, time = self._state.views(), decisions.counts.tolist(), events.time
        vertices, replicas = graph.placement.vertex, graph.placement.replica
        blocks: list[Block] = []
        columns: tuple[Array, ...]
        if counts[N_VERTICES]:
            self._add_vertices(blocks, decisions, counts[N_VERTICES], first_vertex, time, arrival)
        if n := counts[N_REPLICAS]:
            ends, columns = self._allocate(n, INT32, INT32, INT32)
            gather_replicas(first_replica, *decisions, graph.live, vertices, replicas, ends, *columns)
            self._add_sorted(blocks, REPLICAS, ends, columns, graph.parts[NEXT_SLOT])
        if n := counts[N_SOURCES]:
            ends, columns = self._allocate(n, INT32, INT32, INT32)
            gather_sources(*decisions, graph.live, vertices, replicas, ends, *columns)
            self._add_sorted(blocks, SOURCES, ends, columns)
        if counts[N_VERTEX_DELETES]:
            self._add_vertex_deletes(blocks, decisions.of(VertexDeletes), time, arrival, first_replica)
        if counts[N_REMOVES]:
            self._add_removes(blocks, decisions.of(Removes), time, arrival)
        if n := counts[N_ADDS]:
            directed = self._directed
            ends, columns = self._allocate(n if directed else 2 * n, INT32, INT32, INT32, INT64, INT64)
            gather_adds(
                directed, deletes, *decisions, graph.live, vertices, replicas, time, arrival, ends, *columns
            )
            self._add_sorted(blocks, EDGE_ADDS, ends, columns, self._edge_extents())
        if counts[N_EDGE_FEATURES]:
            self._add_edge_values(blocks, decisions.of(EdgeFeatureUpdates), time, arrival)
        if counts[N_LABELS]:
            self._add_labels(blocks, decisions.of(LabelUpdates), arrival)
        if counts[N_FEATURES]:
            self._add_features(blocks, decisions.of(FeatureUpdates), events, arrival)
        return blocks

    def add_grouped(
        self, blocks: list[Block], kind: BlockKind, part: Array, columns: tuple[Array, ...],
        extents: Ints | None = None,
    ) -> None:  # fmt: skip
        """Group rows by their `part` and add a block for each part; rows of part -1 are left out."""
        order, ends = group_by_part(part, self._parts)
        self._add_sorted(blocks, kind, ends, tuple(column[order] for column in columns), extents)

    def _add_sorted(
        self, blocks: list[Block], kind: BlockKind, ends: Ints, columns: tuple[Array, ...],
        extents: Ints | None = None,
    ) -> None:  # fmt: skip
        """Add a block for each part, of columns that are sorted by part."""
        extent_of = self._no_extents if extents is None else extents.tolist()
        if self._parts == 1 and 0 < ends.item(0) == len(columns[0]):
            blocks.append(Block(kind, 0, 0, columns, extent_of[0]))
            return
        for target, begin, end in spans(ends[: self._parts]):
            whole = end - begin == len(columns[0])
            rows = columns if whole else tuple([column[begin:end] for column in columns])
            blocks.append(Block(kind, 0, target, rows, extent_of[target]))

    def _allocate(self, n: int, *dtypes: np.dtype[Any]) -> tuple[Ints, tuple[Array, ...]]:
        """For a gathering loop: the ends of parts, and columns of n rows."""
        return np.zeros(self._parts + 1, INT64), tuple([np.empty(n, dtype) for dtype in dtypes])

    def _edge_extents(self) -> Ints:
        slots: Ints = self._state.views().parts[NEXT_EDGE]
        return slots if self._directed else 2 * slots

    def _add_vertices(
        self, blocks: list[Block], decisions: DecisionRows, n: int, first: int, time: Ints, arrival: Ints
    ) -> None:
        graph = self._state.views()
        vertices, replicas = graph.placement.vertex, graph.placement.replica
        ends, (code, *columns) = self._allocate(n, INT32, INT32, INT32, UINT64, INT64, INT64)
        gather_vertices(
            first, *decisions, graph.live, vertices, replicas, graph.hashes, time, arrival, ends, code,
            *columns,
        )  # fmt: skip
        keys = self._state.ids.keys.take(code[: ends[-1]])
        if isinstance(keys, IntKeys):
            self._add_sorted(blocks, VERTICES, ends, (*columns, keys.values), graph.parts[NEXT_ROW])
            return
        for target, begin, end in spans(ends[:-1]):
            key, blob = key_columns(keys.take(slice(begin, end)))
            rows = (*[column[begin:end] for column in columns], key)
            blocks.append(Block(VERTICES, 0, target, rows, int(graph.parts[NEXT_ROW, target]), blob=blob))

    def _add_vertex_deletes(
        self, blocks: list[Block], deletes: VertexDeletes, time: Ints, arrival: Ints, first_replica: int
    ) -> None:
        graph, event = self._state.views(), deletes.event
        master = graph.placement.vertex[deletes.vertex]
        # No tombstone for a vertex that was created again in the same batch: the output has one row per id.
        again = graph.live[master[:, CODE]]
        tombstone = np.where(again > 0, NO_TOMBSTONE, TOMBSTONE).astype(np.uint8)
        tombstone[(again == 0) & self._state.had_predecessor(deletes.vertex)] = SURE_TOMBSTONE
        self._state.note_predecessor(again[again > 0] - 1)
        columns: tuple[Array, ...] = (master[:, MASTER_ROW], tombstone, time[event], arrival[event])
        self.add_grouped(blocks, VERTEX_DELETES, master[:, MASTER_PART], columns)
        position, number = replicas_of(
            deletes.vertex, graph.placement.vertex, graph.placement.replica, first_replica
        )
        replica, event = graph.placement.replica[number], event[position]
        columns = (replica[:, REPLICA_SLOT], time[event], arrival[event])
        self.add_grouped(blocks, REPLICA_DELETES, replica[:, REPLICA_PART], columns)

    def _add_removes(self, blocks: list[Block], removes: Removes, time: Ints, arrival: Ints) -> None:
        part, event = removes.part, removes.event
        columns: tuple[Array, ...] = (removes.slot, time[event], arrival[event])
        if not self._directed:
            columns, part = _both_directions(columns), np.repeat(part, 2)
            part[1::2][removes.is_loop > 0] = -1  # a loop is one directed edge
        self.add_grouped(blocks, EDGE_DELETES, part, columns)

    def _add_edge_values(
        self, blocks: list[Block], updates: EdgeFeatureUpdates, time: Ints, arrival: Ints
    ) -> None:
        """All features of each edge of which one changed; NaN for those that it has not."""
        records = self._state.edges.views()
        record, event = _last_event_of_each(*updates)
        exists = records.fields[record, U] >= 0
        record, event = record[exists], event[exists]
        is_known = np.repeat(records.value_known[record] == PRESENT, self._edge_widths, axis=1)
        values = np.where(is_known, records.value[record], _NAN)
        part = records.fields[record, PART]
        columns: tuple[Array, ...] = (records.fields[record, SLOT], time[event], arrival[event], values)
        if not self._directed:
            columns, part = _both_directions(columns), np.repeat(part, 2)
        self.add_grouped(blocks, EDGE_VALUES, part, columns, self._edge_extents())

    def _add_labels(self, blocks: list[Block], updates: LabelUpdates, arrival: Ints) -> None:
        """The label of each vertex whose label changed, as it is after the batch.

        A parked label has the arrival of the event that created its vertex.
        """
        graph = self._state.views()
        vertices = graph.placement.vertex
        vertex, event = _last_event_of_each(*updates)
        code = vertices[vertex, CODE]
        deleted = graph.label_state[code] == DELETED
        values = np.where(deleted[:, None], _NAN, graph.label[code])
        columns: tuple[Array, ...] = (
            vertices[vertex, MASTER_ROW], deleted.view(np.uint8), graph.label_time[code], arrival[event],
            values,
        )  # fmt: skip
        self.add_grouped(blocks, LABELS, live_parts(vertex, graph.live, vertices), columns)

    def _add_features(
        self, blocks: list[Block], updates: FeatureUpdates, events: Events, arrival: Ints
    ) -> None:
        graph = self._state.views()
        vertices, (vertex, event) = graph.placement.vertex, updates
        feature = events.feature[event].astype(np.int32)
        feature = np.where(events.op[event] == Op.DELETE, -1 - feature, feature)
        values = padded_values(event, events.values, events.value_offsets, self._widest_feature)
        columns: tuple[Array, ...] = (
            vertices[vertex, MASTER_ROW], feature, events.time[event], arrival[event], values
        )  # fmt: skip
        self.add_grouped(blocks, FEATURES, live_parts(vertex, graph.live, vertices), columns)


def _both_directions(columns: tuple[Array, ...]) -> tuple[Array, ...]:
    """Undirected edges as two directed ones; the first column holds their slots."""
    slot, *rest = (np.repeat(column, 2, axis=0) for column in columns)
    slot *= 2
    slot[1::2] += 1
    return (slot, *rest)


def _last_event_of_each(number: Ints32, event: Ints32) -> tuple[Ints32, Ints32]:
    """Distinct numbers in ascending order, and the last event of each."""
    distinct, last = np.unique(number[::-1], return_index=True)
    return distinct, event[::-1][last]
