"""Edge L+1: scores of pairs of vertices, for edges if the head scores them, and for queries.

A query is an edge for one batch: its ends arrive with their embeddings, and nothing is stored. Scores of
edges are stored, so that only changed scores are emitted.
"""

from __future__ import annotations

import numpy as np
import torch

from d3gnn.events.keys import Keys
from d3gnn.kernel.adjacency import BEGIN, EDGE, LENGTH, Removed
from d3gnn.kernel.alerts import LAPSED, remembered
from d3gnn.kernel.arrays import reserve_all
from d3gnn.kernel.blocks import (
    ENDS,
    NAMES,
    OUTPUT,
    PAIRS,
    VALUES,
    Block,
    block_keys,
    by_kind,
    joined,
    pair_columns,
)
from d3gnn.kernel.compiled import inlined, lean
from d3gnn.kernel.ids import KeyColumn
from d3gnn.kernel.operators.base import BatchContext, OpenState, Operator, OperatorId
from d3gnn.kernel.operators.config import OperatorConfig
from d3gnn.kernel.operators.part_graph import PartGraph
from d3gnn.kernel.operators.sharing import Separate
from d3gnn.kernel.part_state import PartState
from d3gnn.kernel.topology import Topology
from d3gnn.kernel.touched import ARRIVAL, TIME, VERTEX, clear, make_touched, size, touch, touch_all
from d3gnn.nn.heads import PairHead
from d3gnn.nn.layer import Layer
from d3gnn.types import Array, Bools, Bytes, Floats, Ints, Ints32

#: Pairs that are scored at once: as many as stay in the processor's caches.
_MOST = 4096


class Scored(Layer):
    """What Vertex L sends to Edge L+1: the embeddings as they are."""

    aggr = "sum"
    sends_input = True

    def __init__(self, width: int) -> None:
        super().__init__()
        self.in_width = self.out_width = self.message_width = self.root_width = width


class PairState:
    """The edges of a part, the embeddings and ids of their ends, and the last score of each."""

    def __init__(self, part_state: PartState, graph: PartGraph, width: int) -> None:
        self.part_state = part_state
        self.graph, self.adjacency = graph, graph.adjacency
        self.keys = KeyColumn(part_state, "name")
        self.values = part_state.array("values", np.float32, width)
        self._by_edge = [part_state.array("score", np.float32), part_state.array("reported", np.int32)]
        self.touched = make_touched(0)
        self.reserve(1, 1)

    def reserve(self, slots: int, edges: int) -> None:
        """Room for replica slots and edge slots below these."""
        if slots > len(self.values.data):
            self.values.reserve(slots)
        if edges > len(self.score):
            reserve_all(self._by_edge, edges)
        self.follow()

    def follow(self) -> None:
        """Resize what is not stored to the arrays, which another process may have grown."""
        if len(self.touched) <= len(self.score):
            self.touched = make_touched(len(self.score))

    @property
    def score(self) -> Floats:
        """The last score of each edge; valid only where `reported` is not 0."""
        score: Floats = self._by_edge[0].data
        return score

    @property
    def reported(self) -> Ints32:
        """1 for each edge whose last score was emitted; `LAPSED` where a later one was no alert."""
        reported: Ints32 = self._by_edge[1].data
        return reported


class Pairs(Operator[PairState]):
    """Scores edges and answers queries with the embeddings of the last layer.

    With `emit="head"`, alerts filter the scores of edges; queries are always answered. With `emit="all"`, all
    rows are emitted, with a column that says whether they are alerts.
    """

    def __init__(
        self, id: OperatorId, head: PairHead, width: int, open_state: OpenState, config: OperatorConfig,
        sharing: Separate,
    ) -> None:  # fmt: skip
        super().__init__(id, open_state)
        self._open_graph = sharing.graph(False)
        self.passes_on = False
        self.head, self.width, self.alerts = head, width, config.alerts
        self._marks = config.alerts is not None and config.emit == "all"

    def open(self, part_state: PartState, part: int) -> PairState:
        return PairState(part_state, self._open_graph(part_state, part), self.width)

    def step(self, part: int, topology: Topology, blocks: list[Block], context: BatchContext) -> list[Block]:
        found = by_kind(blocks)
        out = list(found[OUTPUT])
        if self.head.edges:
            out += self._score_edges(part, topology, found, context.rebuild)
            if removed := topology.edge_tombstones:
                time, arrival, *names = removed.columns
                out.append(self._output_block(part, 0, 1, time, arrival, None, tuple(names), removed.blob))
        if found[ENDS]:
            out += self._answer(part, joined(found[ENDS]))
        return out

    def _score_edges(
        self, part: int, topology: Topology, found: list[list[Block]], rebuild: bool
    ) -> list[Block]:
        """Scores of new edges and of edges with a changed end; tombstones of deleted edges."""
        state = self.state(part)
        state.follow()
        replicas, adds = topology.replicas, topology.edge_adds
        if replicas or adds:
            state.reserve(replicas.extent if replicas else 0, adds.extent if adds else 0)
        self._store_ids(state, topology.vertices, joined(found[NAMES]))
        out: list[Block] = []
        removed = state.graph.take_removes(topology, reads=bool(found[VALUES]))
        if removed is not None:
            out += self._tombstones(state, part, removed)
        for block in found[VALUES]:
            slot, time, arrival, fresh = block.columns
            sides = (*state.adjacency.out, *state.adjacency.into)
            self.metrics["messages"] += _touch_edges(
                slot, fresh, time, arrival, state.values.data, *sides, state.touched
            )
        if adds:
            added = state.graph.take_adds(adds)
            touch_all(state.touched, added.slot, added.time, added.arrival)
        return out + self._scores(state, part, rebuild)

    def _store_ids(self, state: PairState, masters: Block | None, names: Block | None) -> None:
        top = len(state.values.data)
        if masters:
            state.keys.put(masters.columns[1], block_keys(masters), top)
        if names:
            state.keys.put(names.columns[0], block_keys(names), top)

    def _tombstones(self, state: PairState, part: int, removed: Removed) -> list[Block]:
        emitted = state.reported[removed.slot] != 0
        state.reported[removed.slot] = 0
        if not emitted.any():
            return []
        removed = Removed(*(column[emitted] for column in removed))
        return [self._block(part, state.keys, removed.src, removed.dst, 0, 1, removed.time, removed.arrival)]

    def _scores(self, state: PairState, part: int, rebuild: bool) -> list[Block]:
        touched, n = state.touched, size(state.touched)
        self.metrics["touched"] += n
        entries = touched[1 : n + 1]
        slots, time, arrival = (entries[:, column].copy() for column in (VERTEX, TIME, ARRIVAL))
        clear(touched)
        if not n:
            return []
        src, dst, _ = state.adjacency.ends(slots.astype(np.int32))  # deleted edges are never touched
        score = self._score(state.values.data, src, dst)
        changed = (score != state.score[slots]) | (state.reported[slots] == 0)
        state.score[slots] = score
        if rebuild:  # any of these may have been emitted before
            state.reported[slots] = LAPSED
        if self._marks:
            state.reported[slots] = 1
            emitted = changed
        else:
            is_alert = self._is_alert(score)
            state.reported[slots] = remembered(is_alert, state.reported[slots])
            emitted = changed & is_alert
        if not emitted.any():
            return []
        src, dst, time, arrival, score = (column[emitted] for column in (src, dst, time, arrival, score))
        return [self._block(part, state.keys, src, dst, 0, 0, time, arrival, score)]

    def _answer(self, part: int, ends: Block | None) -> list[Block]:
        """Match the two ends of each query by its number, and score them."""
        assert ends is not None
        number, is_second, time, arrival, value = ends.columns[:5]
        by_number = np.argsort(number, kind="stable")
        src = by_number[is_second[by_number] == 0].astype(np.int32)
        dst = by_number[is_second[by_number] == 1].astype(np.int32)
        score = self._score(value, src, dst)
        self.metrics["answers"] += len(src)
        keys = block_keys(ends)
        return [self._block(part, keys, src, dst, 1, 0, time[dst], arrival[dst], score)]

    def _is_alert(self, score: Floats) -> Bools:
        """Which scores reach the threshold; all if there is none."""
        if self.alerts is None or self.alerts.threshold is None:
            return np.ones(len(score), np.bool_)
        return score >= self.alerts.threshold

    def _score(self, values: Floats, src: Ints32, dst: Ints32) -> Floats:
        out = np.empty(len(src), np.float32)
        with torch.inference_mode():
            for begin in range(0, len(out), _MOST):
                some = slice(begin, begin + _MOST)
                one, other = (torch.from_numpy(values[rows[some]]) for rows in (src, dst))
                out[some] = self.head.score(one, other).numpy()
        return out

    def _block(
        self, part: int, keys: KeyColumn | Keys, src: Ints32, dst: Ints32, is_query: int, deleted: int,
        time: Ints, arrival: Ints, score: Floats | None = None,
    ) -> Block:  # fmt: skip
        names, blob = pair_columns(keys.take(src), keys.take(dst))
        return self._output_block(part, is_query, deleted, time, arrival, score, names, blob)

    def _output_block(
        self, part: int, is_query: int, deleted: int, time: Array, arrival: Array, score: Floats | None,
        names: tuple[Array, ...], blob: Bytes | None,
    ) -> Block:  # fmt: skip
        """An output block; the score of a tombstone is NaN."""
        flags = (np.full(len(time), flag, np.uint8) for flag in (is_query, deleted))
        known = np.full(len(time), np.nan, np.float32) if score is None else score
        marks: tuple[Bytes, ...] = ()
        if self._marks:  # a tombstone is no alert
            marks = ((self._is_alert(known) & (score is not None)).astype(np.uint8),)
        return Block(PAIRS, part, part, (*flags, time, arrival, known, *marks, *names), blob=blob)


@lean
def _touch_edges(
    slots: Ints32, fresh: Floats, time: Ints, arrival: Ints, values: Floats, out_segments: Ints32,
    out_pool: Ints32, in_segments: Ints32, in_pool: Ints32, touched: Ints,
) -> int:  # fmt: skip
    """Take in new values, and touch the edges of those that changed, whichever end they are."""
    reached = 0
    for i in range(len(slots)):
        v = slots[i]
        changed = False
        for k in range(values.shape[1]):
            changed |= fresh[i, k] != values[v, k]
            values[v, k] = fresh[i, k]
        if changed:
            reached += _touch_side(v, out_segments, out_pool, time[i], arrival[i], touched)
            reached += _touch_side(v, in_segments, in_pool, time[i], arrival[i], touched)
    return reached


@inlined
def _touch_side(v: int, segments: Ints32, pool: Ints32, time: int, arrival: int, touched: Ints) -> int:
    begin = segments[v, BEGIN]
    for j in range(begin, begin + segments[v, LENGTH]):
        touch(touched, pool[j, EDGE], time, arrival)
    return segments[v, LENGTH]  # type: ignore[no-any-return]
