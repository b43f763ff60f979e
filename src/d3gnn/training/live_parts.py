"""The one place that reads a graph for training out of live operators. It changes nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from d3gnn.kernel.adjacency import BEGIN, EDGE, LENGTH, OTHER
from d3gnn.kernel.compiled import lean
from d3gnn.kernel.edge_table import PART, SLOT, USED, U
from d3gnn.kernel.operators import Edge, Partition, Vertex
from d3gnn.kernel.operators.graph_state import PRESENT
from d3gnn.kernel.partitioners.base import MASTER_PART, MASTER_ROW
from d3gnn.nn.model import GNN
from d3gnn.training.part_graph import Labels, PartGraph
from d3gnn.types import Array, Floats, Ints, Ints32


class LiveGraph:
    """Views of a running engine's operators.

    vertex:
        Vertex 0, which holds the model's input.
    edges:
        All Edge operators, Edge 0 too; one that keeps self-loops is read, if there is one.
    """

    def __init__(self, model: GNN, partition: Partition, vertex: Vertex, edges: Sequence[Edge]) -> None:
        self._partition, self._vertex, self._width = partition, vertex, model.in_channels
        self._edge = next((each for each in edges if not each.layer.skips_self_loops), edges[0])
        self._edge_dim = model.edge_dim
        graph = partition.graph()
        code = np.flatnonzero(graph.live[: len(partition.ids)])
        placed = graph.placement.vertex[graph.live[code] - 1]
        #: By master, in the order of parts and rows: code of the id, part, and row there.
        order = np.lexsort((placed[:, MASTER_ROW], placed[:, MASTER_PART]))
        self._code = code[order]
        self._part, self._row = placed[order, MASTER_PART], placed[order, MASTER_ROW]
        self._first = np.searchsorted(self._part, np.arange(partition.parts + 1)).astype(np.int64)
        #: By part and row, the number of the master in its part.
        self._number = [np.zeros(0, np.int32) for _ in range(partition.parts)]
        for part in range(partition.parts):
            rows = self._row[self._first[part] : self._first[part + 1]]
            number = np.full(int(rows.max(initial=-1)) + 1, -1, np.int32)
            number[rows] = np.arange(len(rows))
            self._number[part] = number

    @property
    def counts(self) -> Ints:
        """By part, its masters."""
        counts: Ints = np.diff(self._first)
        return counts

    def part(self, part: int) -> PartGraph:
        """What a part holds, as arrays of its own."""
        begin, end = self._first[part], self._first[part + 1]
        rows, hashes = self._row[begin:end], self._partition.graph().hashes[self._code[begin:end]]
        x = np.ascontiguousarray(self._vertex.values(part, rows)[:, : self._width])
        state = self._edge.state(part)
        segments, pool = state.adjacency.into
        n = int(segments[:, LENGTH].sum(dtype=np.int64))
        src, dst, slot = (np.empty(n, np.int32) for _ in range(3))
        _collect_edges(segments, pool, src, dst, slot)
        features = self._features(part, slot)
        # Replicas without edges are left out.
        used, number = np.unique(np.concatenate([src, dst]), return_inverse=True)
        master = state.master.data[used]
        home_part, home = master[:, 0] - 1, np.empty(len(used), np.int32)
        for other in range(self._partition.parts):
            of_other = home_part == other
            home[of_other] = self._number[other][master[of_other, 1]]
        ends: Ints32 = number.astype(np.int32)
        return PartGraph(part, x, hashes, home_part, home, ends[:n], ends[n:], features)

    def _features(self, part: int, slot: Ints32) -> Floats:
        """Raw features of the edges at these slots; the table of edges has them."""
        found = np.full((len(slot), self._edge_dim), np.nan, np.float32)
        schema = self._partition.schema
        widths = list(schema.edge_features.values())
        if not len(slot) or not self._edge_dim or not widths:
            return found
        records = self._partition.edges()
        fields = records.fields[: records.counters[USED]]
        record = np.flatnonzero((fields[:, U] >= 0) & (fields[:, PART] == part))
        known = np.repeat(records.value_known[record] == PRESENT, widths, axis=1)
        values = np.where(known, records.value[record], np.float32(np.nan))
        by_slot = np.full((int(slot.max()) + 1, self._edge_dim), np.nan, np.float32)
        slots, both = fields[record, SLOT], [0] if schema.directed else [0, 1]
        for direction in both:
            place = slots if schema.directed else 2 * slots + direction
            inside = place < len(by_slot)
            by_slot[place[inside]] = values[inside]
        return by_slot[slot]

    def labels(self) -> Labels:
        """The labels of all vertices that exist."""
        graph = self._partition.graph()
        code = self._code
        rows = np.flatnonzero(graph.label_state[code] == PRESENT)
        part = self._part[rows].astype(np.int32)
        return Labels(
            part, (rows - self._first[part]).astype(np.int32), graph.label[code[rows]],
            np.zeros(len(rows), np.bool_), graph.hashes[code[rows]], graph.label_time[code[rows]],
        )  # fmt: skip

    def codes(self) -> Array:
        """By master, in the order of parts: the code of its id."""
        return self._code


@lean
def _collect_edges(segments: Ints32, pool: Ints32, src: Ints32, dst: Ints32, slot: Ints32) -> None:
    n = 0
    for v in range(len(segments)):
        begin = segments[v, BEGIN]
        for j in range(begin, begin + segments[v, LENGTH]):
            src[n], dst[n], slot[n] = pool[j, OTHER], v, pool[j, EDGE]
            n += 1
