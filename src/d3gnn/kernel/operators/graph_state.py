"""The graph as Partition keeps it: ids, vertices, replicas, edges and labels, in growable arrays."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from d3gnn.events import GraphSchema
from d3gnn.kernel.arrays import reserve_all
from d3gnn.kernel.compiled import inlined
from d3gnn.kernel.edge_table import LOAD, NEXT_ROW, EdgeTable
from d3gnn.kernel.expiry_wheel import VERTEX_COLUMNS, WHEEL_SIZE
from d3gnn.kernel.ids import IdTable
from d3gnn.kernel.part_state import PartState
from d3gnn.kernel.partitioners.base import REPLICA_FIELDS, TOTALS, VERTEX_FIELDS, Placement, Settings
from d3gnn.types import Bools, Bytes, Floats, Hashes, Ints, Ints32

#: State of a label or a feature; 0 before the first one. The time of a deleted one is kept, since older
#: events must stay late.
DELETED, PRESENT = 1, 2
#: Values of `Rules.mode`; keyed edges are simple ones with a key.
SIMPLE, MULTI, APPEND = range(3)


class Rules(NamedTuple):
    """The schema and the settings of the partitioner, for compiled code."""

    mode: int
    directed: bool
    settings: Settings
    destinations: bool  # whether destinations of edges receive values, too
    edge_feature_ends: Ints  # [feature, 2]: begin and end of each feature in an edge's values
    keep_deletes: int  # how long the time of a vertex delete is kept, -1 for ever
    ttl: int  # of edges; 0 if nothing expires
    vertex_ttl: int  # 0 if vertices do not expire


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
    counters: Ints  # [VERTEX_COUNT ... PLANNED_EDGES], as `Placement.totals`
    deleted: Hashes  # by code: stamp of its newest delete (`vertex_deletes`); empty before the first one
    newest_delete: Hashes  # [1]: the newest of them
    vertex_expiry: Ints  # by vertex: VERTEX_COLUMNS of the expiry wheel; without columns if none expires
    vertex_wheel: Ints  # empty if nothing expires
    placement: Placement


#: A named tuple as a plain one: plain tuples enter compiled code several times faster.
Plain = tuple[Any, ...]


class GraphState:
    """The arrays of the graph. Numbers of vertices are never reused before a rebuild."""

    def __init__(self, part_state: PartState, schema: GraphSchema, parts: int) -> None:
        self.part_state = part_state
        self.counters = part_state.counters("graph", TOTALS)
        self.ids = IdTable(part_state, "id")
        width = sum(schema.edge_features.values())
        expiry = schema.expiry
        self._wheels = part_state.array("expiry_wheels", np.int64)
        wheel = None if expiry is None else self.edge_wheel
        self.edges = EdgeTable(part_state, len(schema.edge_features), width, wheel)
        if expiry is not None:
            self._wheels.reserve(2 * WHEEL_SIZE)
        vertices_expire = expiry is not None and expiry.vertex_ttl is not None
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
            part_state.array("vertex_expiry", np.int64, VERTEX_COLUMNS if vertices_expire else 0),
        ]
        #: Only graphs of which vertices are deleted have this array.
        self._deleted = part_state.array("deleted", np.uint64)
        self._newest_delete: Hashes = part_state.counter("newest_delete").view(np.uint64)
        #: By vertex: whether a vertex of its id was deleted in the batch that created it. Only graphs that
        #: have such vertices have this array.
        self._predecessor = part_state.array("predecessor", np.uint8)
        #: Only graphs with an offline partitioner have this array: planned parts, by code.
        self.planned = part_state.array("planned", np.int32)
        self._replica = part_state.array("replica", np.int32, REPLICA_FIELDS)
        self._parts = part_state.array("parts", np.int64, parts)
        self._parts.reserve(LOAD + 1)
        self._score = np.zeros(parts, np.float64)
        self._generation = -1
        self.reserve(1)

    def reserve(self, events: int, deletes: bool = False) -> None:
        """Make room for what a batch of this many events may create; their ids have codes already.

        `deletes` is whether the batch deletes vertices.
        """
        vertices, replicas, *_ = self.counters.tolist()
        if len(self.ids) >= len(self._by_code[0].data):
            reserve_all(self._by_code, len(self.ids) + 1)
        if (deletes or len(self._deleted.data)) and len(self.ids) > len(self._deleted.data):
            self._deleted.reserve(len(self.ids))
        if vertices + 2 * events > len(self._by_vertex[0].data):
            reserve_all(self._by_vertex, vertices + 2 * events)
        self._replica.reserve(replicas + 3 * events)
        if self._has_edge_table:
            live, vertex = self._by_code[0].data, self._by_vertex[0].data
            self.edges.reserve(events, live, vertex, self._parts.data)

    def note_predecessor(self, vertices: Ints32) -> None:
        """Keep that these vertices were deleted and created again in one batch."""
        if len(vertices):
            self._predecessor.reserve(int(vertices.max()) + 1)
            self._predecessor.data[vertices] = 1

    def had_predecessor(self, vertices: Ints32) -> Bools:
        """Whether these vertices were deleted and created again in the batch that created them."""
        known = self._predecessor.data
        found: Bools = np.zeros(len(vertices), np.bool_)
        if len(known):
            inside = vertices < len(known)
            found[inside] = known[vertices[inside]] > 0
        return found

    def edge_wheel(self) -> Ints:
        """The expiry wheel of edges, which also knows how far expiry has come."""
        return self._wheels.data[:WHEEL_SIZE]  # type: ignore[no-any-return]

    def views(self) -> Graph:
        """The arrays as they are now; valid until the next `reserve`."""
        if self._generation != self.part_state.generation:
            live, label_state, label_time, label = (array.data for array in self._by_code)
            vertex, feature_time, feature_known, vertex_expiry = (array.data for array in self._by_vertex)
            parts = self._parts.data
            self._views = Graph(
                live, self.ids.hashes, label_state, label_time, label, feature_time, feature_known, parts,
                self.counters, self._deleted.data, self._newest_delete,
                vertex_expiry, self._wheels.data[WHEEL_SIZE : 2 * WHEEL_SIZE],
                Placement(
                    vertex, self._replica.data, parts[LOAD], parts[NEXT_ROW], self.counters,
                    self.planned.data, self._score,
                ),
            )  # fmt: skip
            self._plain_views = tuple(self._views[:-1]), tuple(self._views.placement)
            self._generation = self.part_state.generation
        return self._views

    def plain_views(self) -> tuple[Plain, Plain]:
        """`views` for compiled code: all but the placement, and the placement."""
        self.views()
        return self._plain_views


@inlined
def vertex_of(code: int, graph: Graph) -> int:
    """The vertex of an id; -1 if there is none."""
    return graph.live[code] - 1 if code >= 0 else -1
