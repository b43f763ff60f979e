"""Edge l: the edges of a part, a copy of every value they carry, one partial aggregate per destination."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import numpy as np
import torch

from d3gnn.kernel.adjacency import LENGTH, Adjacency, Removed
from d3gnn.kernel.aggregators import Messages, aggregator_of
from d3gnn.kernel.blocks import FEATURES, PARTIALS, ROOTS, VALUES, Block, by_kind, spans
from d3gnn.kernel.operators.base import BatchContext, OpenState, Operator, OperatorId
from d3gnn.kernel.operators.config import OperatorConfig
from d3gnn.kernel.operators.edge_state import (
    EdgeState,
    collect_partials,
    collect_roots,
    count_reached,
    learn_masters,
    touch_reached,
    touch_without_cause,
)
from d3gnn.kernel.operators.sharing import Separate
from d3gnn.kernel.part_state import PartState
from d3gnn.kernel.topology import Topology
from d3gnn.kernel.touched import (
    TIME,
    VERTEX,
    are_in,
    clear,
    size,
    sort,
)
from d3gnn.kernel.windows.pending import Pending
from d3gnn.nn.layer import Layer
from d3gnn.types import FLOAT32, INT32, INT64, Floats

_NO_SEGMENTS = np.zeros((0, 3), np.int32)
#: A message pushed to a destination reads and writes a float64 row; one pulled reads a float32 row.
PUSH_COST = 2.0
#: Up to this many messages are always pushed.
SMALLEST_PULL = 64
#: From this share of its destinations on, a part that pulls recomputes all of them (a FULL block).
WHOLE_SHARE = 0.9


def prefers_pull(incoming: int, adjacency: Adjacency, others: int) -> bool:
    """Whether it is cheaper to pull all messages of the destinations that are reached than to push the
    changed ones, together with `others` that a pull need not push.
    """
    return incoming > SMALLEST_PULL and incoming * PUSH_COST > adjacency.edge_count + others


class Edge(Operator[EdgeState]):
    """The edges of a layer in each part. In its window, partial aggregates of destinations are pending."""

    def __init__(
        self, id: OperatorId, layer: Layer, open_state: OpenState, config: OperatorConfig, sharing: Separate
    ) -> None:
        super().__init__(id, open_state, config.reduce)
        self.parts, self.layer, self.sends_input = config.parts, layer, layer.sends_input
        self.aggregator = aggregator_of(layer)
        self.width = self.aggregator.state_width(layer.message_width)
        self._sums = self.aggregator.sums(self.width)
        self._edge_width, self._open_graph = layer.edge_width, sharing.graph(layer.skips_self_loops)
        self._invalidates = not self.aggregator.invertible
        #: The columns of values that Vertex l is sent as roots: none where it reads them itself.
        self.roots_width = 0 if sharing.near(id.layer, layer, config).roots else layer.message_width
        # What the next operator needs and this one does not.
        self._forwards = FEATURES if id.layer == 0 else ROOTS

    def open(self, part_state: PartState, part: int) -> EdgeState:
        layer, pending, graph = self.layer, self.open_window(part_state), self._open_graph(part_state, part)
        return EdgeState(
            part_state, graph, layer.message_width, self.width, layer.edge_width, pending, self._invalidates
        )

    def pending(self, part: int) -> Pending | None:
        return self.state(part).pending

    def step(self, part: int, topology: Topology, blocks: list[Block], context: BatchContext) -> list[Block]:
        found = by_kind(blocks)
        values, forwarded = found[VALUES], found[self._forwards]
        state, removed = self.take_topology(part, topology, values)
        return [*forwarded, *self.aggregate(state, part, topology, values, removed, context)]

    def take_topology(
        self, part: int, topology: Topology, values: list[Block]
    ) -> tuple[EdgeState, Removed | None]:
        """Make room for what is new, and take out what is removed (a); `values` are those that follow."""
        state = self.state(part)
        state.follow()
        replicas, adds = topology.replicas, topology.edge_adds
        edge_values = topology.edge_values if self._edge_width else None
        if replicas is not None or adds is not None:
            state.reserve(0 if replicas is None else replicas.extent, 0 if adds is None else adds.extent)
        if edge_values is not None:
            state.reserve(0, edge_values.extent)
        if replicas is not None:
            slot, master_part, master_row = replicas.columns
            learn_masters(slot, master_part, master_row, state.master.data)
        return state, state.graph.take_removes(topology, reads=bool(values) or edge_values is not None)

    def aggregate(
        self,
        state: EdgeState,
        part: int,
        topology: Topology,
        values: list[Block],
        removed: Removed | None,
        context: BatchContext,
    ) -> list[Block]:
        """The roots and partial aggregates that new values and a changed topology cause."""
        deleted, adds = topology.replica_deletes, topology.edge_adds
        incoming, own, segments = 0, [], state.adjacency.out.segments
        for block in values:
            edges, masters = count_reached(block.columns[0], part, segments, state.master.data)
            incoming += edges
            own.append(masters)
        messages = (0 if removed is None else len(removed.src)) + (0 if adds is None else len(adds))
        pulls = prefers_pull(incoming, state.adjacency, messages)
        # (b) removed edges are retracted with their old messages, ...
        if removed is not None:
            self._retract(state, removed, deleted)
        if self._edge_width:
            messages += self._take_edge_values(state, adds, topology.edge_values)
        # ... (c) edges that stay get the new values, (d) new edges are added with new values.
        if values:
            messages += self._replace(state, values, pulls)
        if adds is not None:
            added = state.graph.take_adds(adds)
            self.aggregator.add(added, state.arrays, state.touched, state.invalidated)
        # A FULL block must not contain what is pending.
        whole = pulls and self._pull(state, may_be_whole=self.window is None or context.drain)
        if self._invalidates and size(state.invalidated):
            self._recompute_invalidated(state, pulls)
        metrics = self.metrics
        metrics["messages"] += messages
        due = size(state.touched)
        metrics["touched"] += due
        if pulls:
            metrics["recomputed"] += 1
            metrics["full"] += whole
        if state.pending is not None:
            due = self.hold(state.pending, state.touched, context)
            if deleted is not None:
                state.pending.cancel(deleted.columns[0])
        return self.send(state, part, zip(values, own, strict=True), due, whole)

    def send(
        self, state: EdgeState, part: int, values: Iterable[tuple[Block, int]], due: int, whole: bool = False
    ) -> list[Block]:
        """The blocks for the masters: roots, given the new values and how many of them have their masters
        here, and the partial aggregates of the `due` touched destinations, or of the `whole` part.
        """
        out: list[Block] = []
        if self.sends_input:
            out += [self._roots(state, part, *each) for each in values if each[1]]
        if whole or due:
            out += self._partials(state, part, whole)
        return out

    def _retract(self, state: EdgeState, removed: Removed, deleted: Block | None) -> None:
        arrays = state.arrays
        self.aggregator.retract(Messages(*removed), arrays, state.touched, state.invalidated)
        if deleted is not None:
            slot = deleted.columns[0]
            state.master.data[slot, 0] = 0
            arrays.values[slot] = 0
            arrays.state[slot] = 0
            arrays.counts[slot] = 0
            arrays.bounds[slot] = 0

    def _take_edge_values(self, state: EdgeState, adds: Block | None, given: Block | None) -> int:
        """Store what edges add to their messages; returns how many existing edges were replaced."""
        values = state.edge_values.data
        if adds is not None:
            values[adds.columns[0]] = self._edge_default
        if given is None:
            return 0
        slot, time, arrival, features = given.columns
        src, dst, there = state.adjacency.ends(slot)
        changed = Messages(src[there], dst[there], slot[there], time[there], arrival[there])
        self.aggregator.retract(changed, state.arrays, state.touched, state.invalidated)
        values[slot] = self._edge_values(features)
        self.aggregator.add(changed, state.arrays, state.touched, state.invalidated)
        return len(changed.slot)

    @cached_property
    def _edge_default(self) -> Floats:
        """What an edge without features adds to its message."""
        default: Floats = self._edge_values(np.full((1, self.layer.edge_dim), np.nan, FLOAT32))[0]
        return default

    def _edge_values(self, features: Floats) -> Floats:
        known = np.where(np.isnan(features), np.float32(self.layer.edge_default), features)
        with torch.inference_mode():
            made: Floats = self.layer.edge(torch.from_numpy(known)).numpy()
            return made

    def _replace(self, state: EdgeState, blocks: list[Block], pulls: bool) -> int:
        out, touched, arrays, messages = state.adjacency.out, state.touched, state.arrays, 0
        for block in blocks:
            slot, time, arrival, fresh = block.columns
            if pulls:
                degree = state.adjacency.into.segments if self.layer.reads_destination else _NO_SEGMENTS
                both = arrays.values, arrays.bounds
                messages += touch_reached(slot, fresh, time, arrival, *both, *out, degree, touched)
            else:
                replace = self.aggregator.replace
                messages += replace(slot, fresh, time, arrival, arrays, out, touched, state.invalidated)
        return messages

    def _recompute_invalidated(self, state: EdgeState, pulled: bool) -> None:
        """Recompute the destinations whose state could not be changed incrementally, all at once."""
        if not pulled:
            invalidated = state.invalidated[1 : 1 + size(state.invalidated), VERTEX].astype(np.int32)
            self.aggregator.recompute(invalidated, state.arrays, state.adjacency.into)
            self.metrics["invalidated"] += len(invalidated)
        clear(state.invalidated)

    def _recompute_dwarfed(self, state: EdgeState, n: int, collected: Floats) -> None:
        """Recompute the n destinations whose sums owe too much to messages that have left, as they were
        noticed when their partials were collected.
        """
        vertices, rows = state.touched[1 : 1 + n, VERTEX].astype(INT32), state.touched[1 : 1 + n, TIME]
        self.aggregator.recompute(vertices, state.arrays, state.adjacency.into)
        with np.errstate(over="ignore"):  # as in compiled code
            collected[rows] = state.sums.data[vertices]
        self.metrics["invalidated"] += n

    def _pull(self, state: EdgeState, may_be_whole: bool) -> bool:
        """Recompute the touched destinations, or all if nearly all were touched; whether it was all."""
        into, touched = state.adjacency.into, state.touched
        reached = touched[1 : 1 + size(touched), VERTEX].astype(np.int32)
        destinations = np.flatnonzero(into.segments[:, LENGTH]).astype(np.int32)
        whole = may_be_whole and len(reached) >= WHOLE_SHARE * len(destinations)
        self.aggregator.recompute(reached, state.arrays, into)
        if whole:
            rest = destinations[~are_in(touched, destinations)]
            self.aggregator.recompute(rest, state.arrays, into)
            touch_without_cause(touched, rest)
        return whole

    def _roots(self, state: EdgeState, part: int, block: Block, n: int) -> Block:
        """The values of the n vertices whose masters are in this part, for their update."""
        slots, times, arrivals, values = block.columns
        row, time, arrival = np.empty(n, INT32), np.empty(n, INT64), np.empty(n, INT64)
        value = np.empty((n, self.roots_width), FLOAT32)
        collect_roots(part, state.master.data, slots, times, arrivals, values, row, time, arrival, value)
        return Block(ROOTS, part, part, (row, time, arrival, value), sequence=block.sequence)

    def _partials(self, state: EdgeState, part: int, whole: bool) -> list[Block]:
        n = size(state.touched)
        sort(state.touched)
        ends = np.zeros(self.parts + 1, INT64)
        columns = (
            np.empty(n, INT32), np.empty(n, INT32), np.empty(n, INT64), np.empty(n, INT64),
            np.empty((n, self.width), FLOAT32),
        )  # fmt: skip
        _, _, sums, counts, bounds = state.arrays
        first, last = self._sums
        dwarfed = collect_partials(
            state.touched, state.master.data, counts, sums, bounds, first, last, ends, *columns
        )
        if dwarfed:
            self._recompute_dwarfed(state, dwarfed, columns[-1])
        if self.parts == 1 and ends.item(0) == n:
            return [Block(PARTIALS, part, 0, columns, full=whole)]
        blocks = []
        for target, begin, end in spans(ends[:-1], empty=whole):
            some = columns if end - begin == n else tuple(c[begin:end] for c in columns)
            blocks.append(Block(PARTIALS, part, target, some, full=whole))
        return blocks
