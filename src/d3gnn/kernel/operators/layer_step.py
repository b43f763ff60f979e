"""Edge l and Vertex l of a small batch in one compiled call.

A batch of one edge does little in each operator: the calls of compiled loops, and the columns that pass
between them, take longer than the loops. This is the same protocol, in the same order, for the simplest case:
one part, sums, an affine update, no window, few messages. All other batches go through the operators one by
one, with the same result, bit for bit. See docs/adr/0034-small-batches-take-one-call-a-layer.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from d3gnn.kernel.adjacency import LENGTH
from d3gnn.kernel.aggregators.cancellation import TAKEN, is_dwarfed
from d3gnn.kernel.aggregators.linear import Linear, add_messages, replace_messages, retract_messages
from d3gnn.kernel.blocks import Block
from d3gnn.kernel.compiled import lean, specialised
from d3gnn.kernel.operators.base import BatchContext, Operator
from d3gnn.kernel.operators.edge import SMALLEST_PULL, Edge
from d3gnn.kernel.operators.edge_state import EdgeState
from d3gnn.kernel.operators.layer_vertex import FEW, LayerVertex
from d3gnn.kernel.operators.master_lists import PARTIALS, take_partial
from d3gnn.kernel.operators.master_loops import renew_few
from d3gnn.kernel.operators.vertex_state import VertexState, allocate_changes
from d3gnn.kernel.topology import Topology
from d3gnn.kernel.touched import ARRIVAL, TIME, VERTEX, clear, touch
from d3gnn.types import FLOAT32, INT32, INT64, Ints, Ints32

#: Several columns or settings, as a plain tuple.
Columns = Any
#: What `_step` returns instead of the number of changed masters: there are too many messages, or no room for
#: partials, and nothing was done; the aggregates are up to date, but one of them must be recomputed; all was
#: done but the update, for too many masters.
_MANY, _DWARFED, _DUE = -1, -2, -3
#: What `_step` counts: messages, touched destinations, masters that are due.
_MESSAGES, _TOUCHED, _MASTERS = range(3)

_NONE32, _NONE64 = np.empty(0, INT32), np.empty(0, INT64)
_NO_EDGES = (_NONE32, _NONE32, _NONE32, _NONE64, _NONE64)


class LayerStep:
    """Edge l and Vertex l of the one part of a graph."""

    def __init__(self, edge: Edge, vertex: LayerVertex) -> None:
        self._edge, self._vertex = edge, vertex
        aggregator, layer, affine = edge.aggregator, vertex.layer, vertex.layer.affine
        assert affine is not None
        self._step: Any = specialised(_step, aggregator.steps_name, **aggregator.steps)
        self._no_values = _NONE32, _NONE64, _NONE64, np.empty((0, layer.message_width), FLOAT32)
        self._settings = (
            aggregator.params,
            *affine,
            vertex.min_change,
            *aggregator.sums(edge.width),
            edge.roots_width,
        )
        self._scratch = (
            np.empty(edge.width), np.empty(edge.width, FLOAT32), np.empty((FEW, layer.root_width), FLOAT32),
            np.empty((FEW, layer.aggregate_width), FLOAT32), np.empty(edge.width),
            np.empty((FEW, layer.out_width), FLOAT32),
        )  # fmt: skip
        self._counts = np.zeros(3, INT64)
        self._fixed = self._settings, self._scratch, self._counts
        self._versions: tuple[object, ...] = ()
        self._arrays: tuple[Any, ...] = ()

    @staticmethod
    def of(edge: Operator[Any] | None, vertex: Operator[Any] | None, parts: int) -> LayerStep | None:
        """The two operators as one; None if their batches must go through them one by one."""
        if type(edge) is not Edge or not isinstance(vertex, LayerVertex) or parts > 1:
            return None
        is_sum = isinstance(edge.aggregator, Linear) and not edge.layer.edge_width
        has_window = edge.window is not None or vertex.window is not None
        if not is_sum or vertex.layer.affine is None or has_window:
            return None
        return LayerStep(edge, vertex)

    def takes(self, topology: Topology, blocks: list[Block]) -> bool:
        """Whether a batch with these blocks may be small enough."""
        if len(blocks) > 1 or topology.replica_deletes is not None:
            return False
        return not blocks or len(blocks[0].columns[0]) <= SMALLEST_PULL

    def step(self, topology: Topology, blocks: list[Block], context: BatchContext) -> list[Block]:
        """A batch of both operators; returns the blocks that Vertex l sends."""
        edge, vertex = self._edge, self._vertex
        edge_state, removed = edge.take_topology(0, topology, blocks)
        state, adds = vertex.take_topology(0, topology), topology.edge_adds
        added = _NO_EDGES
        if adds is not None:
            slot, src, dst, time, arrival = adds.columns
            added = (src, dst, slot, time, arrival)
        changes = allocate_changes(FEW, vertex.width)
        values = blocks[0].columns if blocks else self._no_values
        gone = _NO_EDGES if removed is None else tuple(removed)
        arrays = self._views(edge_state, state)
        kept = self._step(values, gone, added, *arrays, *self._fixed, changes)
        if kept == _MANY:
            state.reserve_partials(SMALLEST_PULL)  # there may only have been no room for them
            sent = edge.aggregate(edge_state, 0, topology, blocks, removed, context)
            return vertex.update(state, 0, topology, sent, context)
        if adds is not None:
            edge_state.graph.take_adds(adds)
        messages, touched, due = self._counts.tolist()
        metrics = edge.metrics
        metrics["messages"] += messages
        metrics["touched"] += touched
        if kept == _DWARFED:
            sent = edge.send(edge_state, 0, [(block, len(block)) for block in blocks], touched)
            return vertex.update(state, 0, topology, sent, context)
        if kept == _DUE:
            changes = vertex.renew(state, due)
        elif kept < FEW:
            row, value, time, arrival = changes
            changes = row[:kept], value[:kept], time[:kept], arrival[:kept]
        return vertex.pass_on(state, 0, topology, changes, context)

    def _views(self, edge: EdgeState, vertex: VertexState) -> tuple[Any, ...]:
        """The arrays of both operators; they are the same until one of them moves."""
        versions = (edge, *edge.generations, vertex, vertex.generation)
        if versions != self._versions:
            rows = vertex.rows
            self._arrays = (
                tuple(edge.adjacency.out), tuple(edge.arrays), edge.master.data, edge.touched,
                vertex.partials, vertex.counters, (rows.root, rows.value, rows.unsent, rows.slot),
                vertex.touched,
            )  # fmt: skip
            self._versions = versions
        return self._arrays


@lean
def _step(
    given: Columns, removed: Columns, added: Columns, out: Columns, arrays: Columns, master: Ints32,
    edge_touched: Ints, lists: Columns, counters: Ints, masters: Columns, touched: Ints, settings: Columns,
    scratch: Columns, found: Ints, changes: Columns,
) -> int:  # fmt: skip
    """Both operators, as far as possible; returns the number of masters that changed, or why not."""
    slot, time, arrival, fresh = given
    segments, pool = out
    values, edge_values, sums, counts, bounds = arrays
    difference, partial, root, aggregate, total, updated = scratch
    params, left, right, bias, relu, min_change, first_sum, last_sum, roots_width = settings
    first, partials, states = lists
    roots, value, unsent, slots = masters

    messages = len(removed[0]) + len(added[0])
    reached = messages + len(slot)
    for u in slot:
        reached += segments[u, LENGTH]
    if reached > SMALLEST_PULL or counters[PARTIALS] + reached > len(partials):
        return _MANY

    # Edge l: the protocol's steps (b), (c) and (d).
    retract_messages(*removed, *arrays, edge_touched)  # type: ignore[call-arg]  # of any length, to mypy
    messages += replace_messages(
        slot, fresh, time, arrival, segments, pool, values, edge_values, sums, bounds, edge_touched,
        difference,
    )  # fmt: skip
    add_messages(*added, *arrays, edge_touched)  # type: ignore[call-arg]
    destinations = edge_touched[0, VERTEX]
    found[_MESSAGES], found[_TOUCHED] = messages, destinations
    for at in range(1, destinations + 1):
        v = edge_touched[at, VERTEX]
        for k in range(len(partial)):
            partial[k] = sums[v, k]
        if first_sum < last_sum and is_dwarfed(bounds[v, TAKEN], sums[v], partial, first_sum, last_sum):
            return _DWARFED

    # Vertex l: roots, then partials, then the update.
    for i in range(len(slot)):
        row = master[slot[i], 1]
        touch(touched, row, time[i], arrival[i])
        for k in range(roots_width):
            roots[row, k] = fresh[i, k]
    for at in range(1, destinations + 1):
        v = edge_touched[at, VERTEX]
        row = master[v, 1]
        touch(touched, row, edge_touched[at, TIME], edge_touched[at, ARRIVAL])
        for k in range(len(partial)):
            partial[k] = sums[v, k]
        take_partial(0, row, counts[v], partial, first, partials, states, counters)
    clear(edge_touched)
    due = touched[0, VERTEX]
    found[_MASTERS] = due
    if due > len(root):
        return _DUE
    rows, new_values, times, arrivals = changes
    return renew_few(
        touched, roots, first, partials, states, slots, sums, params, root[:due], aggregate[:due],
        partial, total,
        left, right, bias, relu, updated[:due], min_change, value, unsent, rows, new_values, times, arrivals,
    )  # fmt: skip
