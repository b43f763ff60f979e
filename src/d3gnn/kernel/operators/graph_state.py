"""The graph as Partition keeps it: ids, vertices, replicas, edges and labels, in growable arrays."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from d3gnn.events import GraphSchema
from d3gnn.kernel.arrays import reserve_all
from d3gnn.kernel.edge_table import LOAD, EdgeTable
from d3gnn.kernel.ids import IdTable
from d3gnn.kernel.part_state import PartState
from d3gnn.kernel.partitioners.base import REPLICA_FIELDS, VERTEX_FIELDS, Placement, Settings
from d3gnn.types import Bytes, Floats, Hashes, Ints, Ints32

#: State of a label or a feature; 0 before the first one. The time of a deleted one is kept, since older
#: events must stay late.
DELETED, PRESENT = 1, 2
#: Places in `Graph.counters`: vertices and replicas created since the last rebuild; vertices that exist, and
#: those of them that lack a feature.
VERTEX_COUNT, REPLICA_COUNT, LIVE_COUNT, LACKING_COUNT = range(4)


#: Values of `Rules.mode`; keyed edges are simple ones with a key.
SIMPLE, MULTI, APPEND = range(3)


class Rules(NamedTuple):
    """The schema and the settings of the partitioner, for compiled code."""

    mode: int
    directed: bool
    settings: Settings
    destinations: bool  # whether destinations of edges receive values, too
    edge_feature_ends: Ints  # [feature, 2]: begin and end of each feature in an edge's values


class Graph(NamedTuple):
    """Views of all arrays but those of edges. A code is the number of an id."""

    live: Ints32  # by code: number of its vertex plus 1, 0 for none
    hashes: Hashes  # by code
    label_state: Bytes  # by code: 0, DELETED or PRESENT
    label_time: Ints
    label: Floats
    feature_time: Ints  # by vertex
    feature_known: Bytes  # 0, DELETED or PRESENT
    parts: Ints  # [NEXT_ROW ... LOAD, part]
    counters: Ints  # [VERTEX_COUNT ... LACKING_COUNT]
    placement: Placement


#: A named tuple as a plain one: plain tuples enter compiled code several times faster.
Plain = tuple[Any, ...]


class GraphState:
    """The arrays of the graph. Numbers of vertices are never reused before a rebuild."""

    def __init__(self, part_state: PartState, schema: GraphSchema, parts: int) -> None:
        self.part_state = part_state
        self.counters = part_state.counters("graph", LACKING_COUNT + 1)
        self.ids = IdTable(part_state, "id")
        width = sum(schema.edge_features.values())
        self.edges = EdgeTable(part_state, len(schema.edge_features), width)
        self._has_edge_table = schema.edges != "append"
        self._by_code = [
            part_state.array("live", np.int32),
            part_state.array("label_state", np.uint8),
            part_state.array("label_time", np.int64),
            part_state.array("label", np.float32, schema.label_width),
        ]
        self._by_vertex = [
            part_state.array("vertex", np.int32, VERTEX_FIELDS),
            part_state.array("feature_time", np.int64, len(schema.features)),
            part_state.array("feature_known", np.uint8, len(schema.features)),
        ]
        self._replica = part_state.array("replica", np.int32, REPLICA_FIELDS)
        self._parts = part_state.array("parts", np.int64, parts)
        self._parts.reserve(LOAD + 1)
        self._score = np.zeros(parts, np.float64)
        self._generation = -1
        self.reserve(1)

    def reserve(self, events: int) -> None:
        """Make room for what a batch of this many events may create; their ids have codes already."""
        vertices, replicas, *_ = self.counters.tolist()
        if len(self.ids) >= len(self._by_code[0].data):
            reserve_all(self._by_code, len(self.ids) + 1)
        if vertices + 2 * events > len(self._by_vertex[0].data):
            reserve_all(self._by_vertex, vertices + 2 * events)
        self._replica.reserve(replicas + 3 * events)
        if self._has_edge_table:
            live, vertex = self._by_code[0].data, self._by_vertex[0].data
            self.edges.reserve(events, live, vertex, self._parts.data)

    def views(self) -> Graph:
        """The arrays as they are now; valid until the next `reserve`."""
        if self._generation != self.part_state.generation:
            live, label_state, label_time, label = (array.data for array in self._by_code)
            vertex, feature_time, feature_known = (array.data for array in self._by_vertex)
            parts = self._parts.data
            self._views = Graph(
                live, self.ids.hashes, label_state, label_time, label, feature_time, feature_known, parts,
                self.counters,
                Placement(vertex, self._replica.data, parts[LOAD], self._score),
            )  # fmt: skip
            self._plain_views = tuple(self._views[:-1]), tuple(self._views.placement)
            self._generation = self.part_state.generation
        return self._views

    def plain_views(self) -> tuple[Plain, Plain]:
        """`views` for compiled code: all but the placement, and the placement."""
        self.views()
        return self._plain_views
