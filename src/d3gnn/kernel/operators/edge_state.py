"""The state of a part of Edge l, and loops over it."""

from __future__ import annotations

import numpy as np

from d3gnn.kernel.adjacency import BEGIN, LENGTH, OTHER
from d3gnn.kernel.aggregators import EdgeArrays
from d3gnn.kernel.aggregators.cancellation import SENT, TAKEN, bound_of, is_dwarfed, larger
from d3gnn.kernel.arrays import reserve_all
from d3gnn.kernel.compiled import lean
from d3gnn.kernel.operators.part_graph import PartGraph
from d3gnn.kernel.part_state import PartState
from d3gnn.kernel.prefetch import AHEAD, fetch, fetch_row
from d3gnn.kernel.touched import ARRIVAL, NEVER, TIME, VERTEX, clear, make_touched, touch
from d3gnn.kernel.windows.pending import Pending
from d3gnn.types import Doubles, Floats, Ints, Ints32


class EdgeState:
    """The edges of a part, a copy of every value that they carry, and a state per destination."""

    def __init__(
        self,
        part_state: PartState,
        graph: PartGraph,
        width: int,
        state_width: int,
        edge_width: int,
        pending: Pending | None,
        invalidates: bool,
    ) -> None:
        self.part_state, self.pending, self._invalidates = part_state, pending, invalidates
        self.graph, self.adjacency = graph, graph.adjacency
        self.values = part_state.array("values", np.float32, width)
        self.edge_values = part_state.array("edge_values", np.float32, edge_width)
        self.sums = part_state.array("sums", np.float64, state_width)
        self.count = part_state.array("count", np.int32)
        self.bounds = part_state.array("bounds", np.float64, 2)
        self.master = part_state.array("master", np.int32, 2)  # part plus 1 (0: no replica here), row
        self.touched, self.invalidated = make_touched(0), make_touched(0)
        self._generation = -1
        self._followed = -1
        self.reserve(1, 1)

    def reserve(self, slots: int, edges: int) -> None:
        """Room for replica slots and edge slots below these."""
        if slots > len(self.master.data):
            reserve_all((self.values, self.sums, self.count, self.bounds, self.master), slots)
        if edges > len(self.edge_values.data):
            self.edge_values.reserve(edges)
        self.follow()

    def follow(self) -> None:
        """Resize what is not stored to the arrays, which another process may have grown or emptied."""
        if self._followed != self.part_state.generation:
            slots = len(self.master.data)
            if self.pending is not None:
                self.pending.reserve(slots)
            if len(self.touched) <= slots:
                self.touched = make_touched(slots)
                if self._invalidates:
                    self.invalidated = make_touched(slots)
            self._followed = self.part_state.generation

    @property
    def generations(self) -> tuple[int, int]:
        """Of its own arrays and of those of the lists: one increases when an array moves."""
        return self.part_state.generation, self.adjacency.part_state.generation

    @property
    def arrays(self) -> EdgeArrays:
        """The arrays as aggregators take them."""
        if self._generation != self.part_state.generation:
            arrays = (self.values, self.edge_values, self.sums, self.count, self.bounds)
            self._arrays = EdgeArrays(*(array.data for array in arrays))
            self._generation = self.part_state.generation
        return self._arrays


@lean
def learn_masters(slots: Ints32, parts: Ints32, rows: Ints32, master: Ints32) -> None:
    """New replicas store where their masters are."""
    for i in range(len(slots)):
        master[slots[i], 0] = parts[i] + 1
        master[slots[i], 1] = rows[i]


@lean
def collect_roots(
    part: int, master: Ints32, slots: Ints32, times: Ints, arrivals: Ints, values: Floats,
    row: Ints32, time: Ints, arrival: Ints, value: Floats,
) -> None:  # fmt: skip
    """Collect the vertices whose masters are in this part, with as much of their values as is wanted."""
    n = 0
    for i in range(len(slots)):
        if master[slots[i], 0] - 1 != part:
            continue
        row[n], time[n], arrival[n] = master[slots[i], 1], times[i], arrivals[i]
        for k in range(value.shape[1]):
            value[n, k] = values[i, k]
        n += 1


@lean
def count_reached(slots: Ints32, part: int, segments: Ints32, master: Ints32) -> tuple[int, int]:
    """How many edges leave these vertices, and how many of the vertices have their masters in this part."""
    edges = own = 0
    for u in slots:
        edges += segments[u, LENGTH]
        own += master[u, 0] - 1 == part
    return edges, own


@lean
def touch_reached(
    slots: Ints32, fresh: Floats, time: Ints, arrival: Ints, values: Floats, bounds: Doubles,
    segments: Ints32, pool: Ints32, own: Ints32, touched: Ints,
) -> int:  # fmt: skip
    """Like an aggregator's `replace`, but leaves the states to a recomputation.

    `own` are the in-segments if messages depend on their destination, else empty.
    """
    messages = 0
    for i in range(len(slots)):
        u = slots[i]
        changed, bits = False, np.int32(0)
        for k in range(values.shape[1]):
            changed |= fresh[i, k] != values[u, k]
            bits = larger(bits, fresh[i, k])
            values[u, k] = fresh[i, k]
        bounds[u, SENT] = bound_of(bits)
        if changed:
            begin = segments[u, BEGIN]
            end = begin + segments[u, LENGTH]
            messages += end - begin
            for j in range(begin, end):
                touch(touched, pool[j, OTHER], time[i], arrival[i])
            if len(own) and own[u, LENGTH]:
                messages += own[u, LENGTH]
                touch(touched, u, time[i], arrival[i])
    return messages


@lean
def touch_without_cause(touched: Ints, vertices: Ints32) -> None:
    """Touch vertices without a cause: they are sent, but touch nothing at their masters."""
    for v in vertices:
        touch(touched, v, -NEVER, NEVER)


@lean
def collect_partials(
    touched: Ints, master: Ints32, count: Ints32, sums: Doubles, bounds: Doubles, begin: int, end: int,
    ends: Ints, rows: Ints32, counts: Ints32, time: Ints, arrival: Ints, state: Floats,
) -> int:  # fmt: skip
    """Collect the partials of touched vertices, ordered by their masters' parts. Empties the set.

    Deleted replicas are left out. `ends`, all zero and one longer than there are parts, becomes the end of
    each part's rows. Returns for how many vertices a bound dwarfs the sums, numbers `begin` to `end` of a
    state: vertex and row of each are left in the columns VERTEX and TIME of the first entries of the set.
    """
    dwarfed = 0
    for at in range(1, touched[0, VERTEX] + 1):
        ends[master[touched[at, VERTEX], 0]] += 1
    ends[0] = 0
    for p in range(1, len(ends)):
        ends[p] += ends[p - 1]
    last = touched[0, VERTEX]
    for at in range(1, last + 1):
        next = touched[min(last, at + AHEAD), VERTEX]
        fetch(count, next)
        fetch(bounds, next)
        fetch_row(sums, next)
        v = touched[at, VERTEX]
        p = master[v, 0] - 1
        if p < 0:
            continue
        i = ends[p]  # where the part begins, and where it ends when all of it is there
        ends[p] += 1
        rows[i], counts[i] = master[v, 1], count[v]
        time[i], arrival[i] = touched[at, TIME], touched[at, ARRIVAL]
        for k in range(sums.shape[1]):
            state[i, k] = sums[v, k]
        if begin < end and is_dwarfed(bounds[v, TAKEN], sums[v], state[i], begin, end):
            dwarfed += 1
            touched[dwarfed, VERTEX], touched[dwarfed, TIME] = v, i
    clear(touched)
    return dwarfed
