"""Edge l: the edges of a part, a copy of every value they carry, one partial aggregate per destination."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch

from d3gnn.kernel.adjacency import BEGIN, LENGTH, OTHER, Adjacency, Removed
from d3gnn.kernel.aggregators import Arrays, Carried, aggregator_of
from d3gnn.kernel.arrays import Space, reserve_all
from d3gnn.kernel.blocks import (
    FEATURES,
    PARTIALS,
    ROOTS,
    VALUES,
    Block,
    by_kind,
)
from d3gnn.kernel.compiled import lean
from d3gnn.kernel.operators.base import Moment, Operator, Spaces, remove_edges
from d3gnn.kernel.prefetch import AHEAD, fetch, fetch_row
from d3gnn.kernel.topology import Topology
from d3gnn.kernel.touched import (
    ARRIVAL,
    NEVER,
    TIME,
    VERTEX,
    are_in,
    clear,
    make_touched,
    size,
    sort,
    touch,
)
from d3gnn.kernel.windows import Window
from d3gnn.kernel.windows.pending import Pending
from d3gnn.nn.layer import Layer
from d3gnn.types import FLOAT32, INT32, INT64, Doubles, Floats, Ints, Ints32

_NO_SEGMENTS = np.zeros((0, 3), np.int32)
#: A message pushed to a destination reads and writes a float64 row; one pulled reads a float32 row.
PUSH_COST = 2.0
#: Below so many messages it is not worth thinking about.
SMALLEST_PULL = 64
#: From this share of its destinations on, a part that recomputes does it whole and says so (FULL).
WHOLE_SHARE = 0.9


def prefers_pull(incoming: int, adjacency: Adjacency, others: int) -> bool:
    """Whether to pull all messages of the destinations that are reached, instead of pushing the changed, and
    `others` that have to be pushed otherwise.
    """
    return incoming > SMALLEST_PULL and incoming * PUSH_COST > adjacency.edge_count + others


class EdgeState:
    """What a part of Edge l knows."""

    def __init__(
        self,
        space: Space,
        width: int,
        state_width: int,
        edge_width: int,
        pending: Pending | None,
        makes_hits: bool,
    ) -> None:
        self.space, self.pending, self._makes_hits = space, pending, makes_hits
        self.adjacency = Adjacency(space, space.counters[:3])
        self.values = space.array("values", np.float32, width)
        self.edge_values = space.array("edge_values", np.float32, edge_width)
        self.sums = space.array("sums", np.float64, state_width)
        self.count = space.array("count", np.int32)
        self.master = space.array("master", np.int32, 2)  # part plus 1 (0: no replica here), row
        self.touched, self.hits = make_touched(0), make_touched(0)
        self._generation = -1
        self._followed = -1
        self.reserve(1, 1)

    def reserve(self, slots: int, edges: int) -> None:
        """Room for replica slots and edge slots below these."""
        if slots > len(self.master.data):
            reserve_all((self.values, self.sums, self.count, self.master), slots)
        self.adjacency.reserve(slots, edges)
        if edges > len(self.edge_values.data):
            self.edge_values.reserve(edges)
        self.follow()

    def follow(self) -> None:
        """Be as large as the arrays are, which another process may have grown, or emptied."""
        if self._followed != self.space.generation:
            slots = len(self.master.data)
            if self.pending is not None:
                self.pending.reserve(slots)
            if len(self.touched) <= slots:
                self.touched = make_touched(slots)
                if self._makes_hits:
                    self.hits = make_touched(slots)
            self._followed = self.space.generation

    @property
    def arrays(self) -> Arrays:
        """As aggregators see it."""
        if self._generation != self.space.generation:
            self._arrays = Arrays(self.values.data, self.edge_values.data, self.sums.data, self.count.data)
            self._generation = self.space.generation
        return self._arrays


class Edge(Operator[EdgeState]):
    """The edges of layer `index`. In its window, the partial aggregates of destinations wait to be sent."""

    def __init__(
        self, index: int, parts: int, layer: Layer, spaces: Spaces, window: Window | None = None
    ) -> None:
        super().__init__(spaces, window)
        self.name = f"edge-{index}"
        self.parts, self.layer, self.sends_value = parts, layer, layer.sends_value
        self.aggregator = aggregator_of(layer)
        self.width = self.aggregator.state_width(layer.message_width)
        self._edge_width, self._skips_loops = layer.edge_width, layer.skips_loops
        self._makes_hits = not self.aggregator.invertible
        # What operators behind this one have to know, and this one does not.
        self._passes_along = FEATURES if index == 0 else ROOTS

    def open(self, space: Space, part: int) -> EdgeState:
        layer, waiting = self.layer, self.open_window(space)
        return EdgeState(space, layer.message_width, self.width, layer.edge_width, waiting, self._makes_hits)

    def pending(self, part: int) -> Pending | None:
        return self.state(part).pending

    def step(self, part: int, topology: Topology, blocks: list[Block], moment: Moment) -> list[Block]:
        state = self.state(part)
        state.follow()
        found = by_kind(blocks)
        values, out = found[VALUES], list(found[self._passes_along])
        removes, leaves = topology.removes, topology.leaves
        replicas, adds = topology.replicas, topology.adds
        edge_values = topology.edge_values if self._edge_width else None
        if replicas is not None or adds is not None:
            state.reserve(0 if replicas is None else replicas.extent, 0 if adds is None else adds.extent)
        if edge_values is not None:
            state.reserve(0, edge_values.extent)
        if replicas is not None:
            slot, master_part, master_row = replicas.columns
            _settle(slot, master_part, master_row, state.master.data)

        # (a) the net topology, (b) removed edges take their old messages with them, ...
        removed = remove_edges(state.adjacency, removes, leaves)
        incoming, own, segments = 0, [], state.adjacency.out.segments
        for block in values:
            edges, masters = _look_at(block.columns[0], part, segments, state.master.data)
            incoming += edges
            own.append(masters)
        messages = (0 if removed is None else len(removed.src)) + (0 if adds is None else len(adds))
        pulls = prefers_pull(incoming, state.adjacency, messages)
        if removed is not None:
            self._retract(state, removed, leaves)
        if self._edge_width:
            messages += self._take_edge_values(state, adds, edge_values)
        # ... (c) the edges that stay carry the new values, (d) new edges carry new values.
        if values:
            messages += self._replace(state, values, pulls)
        if adds is not None:
            self._add(state, adds)
        # What waits must not be sent along with the whole.
        whole = pulls and self._pull(state, may_be_whole=self.window is None or moment.drain)
        if self._makes_hits and size(state.hits):
            self._recompute_hits(state, pulls)
        if self.sends_value:
            out += [self._roots(state, part, *each) for each in zip(values, own, strict=True) if each[1]]
        metrics = self.metrics
        metrics["messages"] += messages
        due = size(state.touched)
        metrics["touched"] += due
        if pulls:
            metrics["recomputed"] += 1
            metrics["full"] += whole
        if state.pending is not None:
            due = self.hold(state.pending, state.touched, moment)
            if leaves is not None:
                state.pending.cancel(leaves.columns[0])
        if whole or due:
            out += self._partials(state, part, whole)
        return out

    def _retract(self, state: EdgeState, removed: Removed, leaves: Block | None) -> None:
        arrays = state.arrays
        self.aggregator.retract(Carried(*removed), arrays, state.touched, state.hits)
        if leaves is not None:
            slot = leaves.columns[0]
            state.master.data[slot, 0] = 0
            arrays.values[slot] = 0
            arrays.state[slot] = 0
            arrays.counts[slot] = 0

    def _take_edge_values(self, state: EdgeState, adds: Block | None, given: Block | None) -> int:
        """What edges add to their messages; those that are there already carry theirs anew. How many do."""
        values = state.edge_values.data
        if adds is not None:
            values[adds.columns[0]] = self._edge_default
        if given is None:
            return 0
        slot, time, arrival, features = given.columns
        src, dst, there = state.adjacency.ends(slot)
        changed = Carried(src[there], dst[there], slot[there], time[there], arrival[there])
        self.aggregator.retract(changed, state.arrays, state.touched, state.hits)
        values[slot] = self._edge_values(features)
        self.aggregator.add(changed, state.arrays, state.touched, state.hits)
        return len(changed.slot)

    @cached_property
    def _edge_default(self) -> Floats:
        """What an edge without features adds."""
        default: Floats = self._edge_values(np.full((1, self.layer.edge_in), np.nan, FLOAT32))[0]
        return default

    def _edge_values(self, features: Floats) -> Floats:
        known = np.where(np.isnan(features), np.float32(self.layer.edge_default), features)
        with torch.inference_mode():
            made: Floats = self.layer.edge(torch.from_numpy(known)).numpy()
            return made

    def _add(self, state: EdgeState, adds: Block) -> None:
        slots, src, dst, time, arrival = adds.columns
        if self._skips_loops and (loops := src == dst).any():
            slots, src, dst, time, arrival = (column[~loops] for column in adds.columns)
        state.adjacency.add(slots, src, dst)
        carried = Carried(src, dst, slots, time, arrival)
        self.aggregator.add(carried, state.arrays, state.touched, state.hits)

    def _replace(self, state: EdgeState, blocks: list[Block], pulls: bool) -> int:
        out, touched, arrays, messages = state.adjacency.out, state.touched, state.arrays, 0
        for block in blocks:
            slot, time, arrival, fresh = block.columns
            if pulls:
                degree = state.adjacency.into.segments if self.layer.reads_destination else _NO_SEGMENTS
                messages += _touch_reached(slot, fresh, time, arrival, arrays.values, *out, degree, touched)
            else:
                replace = self.aggregator.replace
                messages += replace(slot, fresh, time, arrival, arrays, out, touched, state.hits)
        return messages

    def _recompute_hits(self, state: EdgeState, pulled: bool) -> None:
        """Destinations from which something could not be taken back, all at once."""
        if not pulled:
            hits = state.hits[1 : 1 + size(state.hits), VERTEX].astype(np.int32)
            self.aggregator.recompute(hits, state.arrays, state.adjacency.into)
            self.metrics["hits"] += len(hits)
        clear(state.hits)

    def _pull(self, state: EdgeState, may_be_whole: bool) -> bool:
        """Recompute what was touched, or everything where that is nearly all; whether it was everything."""
        into, touched = state.adjacency.into, state.touched
        reached = touched[1 : 1 + size(touched), VERTEX].astype(np.int32)
        destinations = np.flatnonzero(into.segments[:, LENGTH]).astype(np.int32)
        whole = may_be_whole and len(reached) >= WHOLE_SHARE * len(destinations)
        self.aggregator.recompute(reached, state.arrays, into)
        if whole:
            rest = destinations[~are_in(touched, destinations)]
            self.aggregator.recompute(rest, state.arrays, into)
            _touch_silently(touched, rest)
        return whole

    def _roots(self, state: EdgeState, part: int, block: Block, n: int) -> Block:
        """The values of the n vertices whose masters are in this part."""
        slots, times, arrivals, values = block.columns
        row, time, arrival = np.empty(n, INT32), np.empty(n, INT64), np.empty(n, INT64)
        value = np.empty((n, values.shape[1]), FLOAT32)
        _own_masters(part, state.master.data, slots, times, arrivals, values, row, time, arrival, value)
        return Block(ROOTS, part, part, (row, time, arrival, value), sequence=block.sequence)

    def _partials(self, state: EdgeState, part: int, whole: bool) -> list[Block]:
        n = size(state.touched)
        sort(state.touched)
        ends = np.zeros(self.parts + 1, INT64)
        columns = (
            np.empty(n, INT32), np.empty(n, INT32), np.empty(n, INT64), np.empty(n, INT64),
            np.empty((n, self.width), FLOAT32),
        )  # fmt: skip
        _gather_partials(state.touched, state.master.data, state.count.data, state.sums.data, ends, *columns)
        blocks = []
        begin = 0
        for target, end in enumerate(ends[:-1].tolist()):
            if end > begin or whole:
                mine = columns if end - begin == n else tuple(c[begin:end] for c in columns)
                blocks.append(Block(PARTIALS, part, target, mine, full=whole))
            begin = end
        return blocks


@lean
def _settle(slots: Ints32, parts: Ints32, rows: Ints32, master: Ints32) -> None:
    """New replicas learn where their masters are."""
    for i in range(len(slots)):
        master[slots[i], 0] = parts[i] + 1
        master[slots[i], 1] = rows[i]


@lean
def _own_masters(
    part: int, master: Ints32, slots: Ints32, times: Ints, arrivals: Ints, values: Floats,
    row: Ints32, time: Ints, arrival: Ints, value: Floats,
) -> None:  # fmt: skip
    """Fill the columns with the vertices that have their masters in this part."""
    n = 0
    for i in range(len(slots)):
        if master[slots[i], 0] - 1 != part:
            continue
        row[n], time[n], arrival[n] = master[slots[i], 1], times[i], arrivals[i]
        for k in range(values.shape[1]):
            value[n, k] = values[i, k]
        n += 1


@lean
def _look_at(slots: Ints32, part: int, segments: Ints32, master: Ints32) -> tuple[int, int]:
    """How many edges leave these vertices, and how many of them have their masters in this part."""
    edges = own = 0
    for u in slots:
        edges += segments[u, LENGTH]
        own += master[u, 0] - 1 == part
    return edges, own


@lean
def _touch_reached(
    slots: Ints32, fresh: Floats, time: Ints, arrival: Ints, values: Floats, segments: Ints32, pool: Ints32,
    own: Ints32, touched: Ints,
) -> int:  # fmt: skip
    """As an aggregator's `replace`, but leaves the sums to a recomputation.

    `own` are the in-segments where messages depend on their destination, else empty.
    """
    messages = 0
    for i in range(len(slots)):
        u = slots[i]
        changed = False
        for k in range(values.shape[1]):
            changed |= fresh[i, k] != values[u, k]
            values[u, k] = fresh[i, k]
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
def _touch_silently(touched: Ints, vertices: Ints32) -> None:
    """Put vertices on the list without a cause: they are sent, but change nothing further on."""
    for v in vertices:
        touch(touched, v, -NEVER, NEVER)


@lean
def _gather_partials(
    touched: Ints, master: Ints32, count: Ints32, sums: Doubles,
    ends: Ints, rows: Ints32, counts: Ints32, time: Ints, arrival: Ints, state: Floats,
) -> None:  # fmt: skip
    """Fill the columns with the partials of touched vertices, by their masters' parts. Empties the set.

    Vertices that have left are passed over. `ends` comes in with zeros, one more than there are parts, and
    says where each part ends.
    """
    for at in range(1, touched[0, VERTEX] + 1):
        ends[master[touched[at, VERTEX], 0]] += 1
    ends[0] = 0
    for p in range(1, len(ends)):
        ends[p] += ends[p - 1]
    last = touched[0, VERTEX]
    for at in range(1, last + 1):
        next = touched[min(last, at + AHEAD), VERTEX]
        fetch(count, next)
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
    clear(touched)
