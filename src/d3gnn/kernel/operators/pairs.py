"""Edge L+1: the scores of pairs; of edges, where the head wants them, and of queries.

A query is an edge that lives for one batch: its ends come with their embeddings, and nothing stays behind.
Scores of edges are kept, so that only those come out that have changed.
"""

from __future__ import annotations

import numpy as np
import torch

from d3gnn.events.keys import Keys
from d3gnn.kernel.adjacency import BEGIN, EDGE, LENGTH, Adjacency, Removed
from d3gnn.kernel.alerts import LAPSED, Alerts, remembered
from d3gnn.kernel.arrays import Space, reserve_all
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
from d3gnn.kernel.operators.base import Moment, Operator, Spaces, remove_edges
from d3gnn.kernel.topology import Topology
from d3gnn.kernel.touched import ARRIVAL, TIME, VERTEX, clear, make_touched, size, touch, touch_all
from d3gnn.nn.heads import PairHead
from d3gnn.nn.layer import Layer
from d3gnn.types import Array, Bytes, Floats, Ints, Ints32

#: So many pairs are scored at once: as many as stay in the processor's caches.
_MOST = 4096


class Scored(Layer):
    """What Vertex L sends to where edges are scored: the embeddings as they are."""

    aggregator = "sum"
    sends_value = True

    def __init__(self, width: int) -> None:
        super().__init__()
        self.in_width = self.out_width = self.message_width = self.root_width = width


class PairState:
    """What a part knows of its edges and of the vertices at their ends."""

    def __init__(self, space: Space, width: int) -> None:
        self.space = space
        self.adjacency = Adjacency(space, space.counters[:3])
        self.keys = KeyColumn(space, "name", space.counters[3:6])
        self.values = space.array("values", np.float32, width)
        self._by_edge = [space.array("score", np.float32), space.array("reported", np.int32)]
        self.touched = make_touched(0)
        self.reserve(1, 1)

    def reserve(self, slots: int, edges: int) -> None:
        """Room for replica slots and edge slots below these."""
        if slots > len(self.values.data):
            self.values.reserve(slots)
        self.adjacency.reserve(slots, edges)
        if edges > len(self.score):
            reserve_all(self._by_edge, edges)
        self.follow()

    def follow(self) -> None:
        """Be as large as the arrays are, which another process may have grown."""
        if len(self.touched) <= len(self.score):
            self.touched = make_touched(len(self.score))

    @property
    def score(self) -> Floats:
        """The last score of each edge; it counts only where `reported` says so."""
        score: Floats = self._by_edge[0].data
        return score

    @property
    def reported(self) -> Ints32:
        """1 for each edge whose score came out and is still worth saying."""
        reported: Ints32 = self._by_edge[1].data
        return reported


class Pairs(Operator[PairState]):
    """Scores edges and answers queries, after the last layer; of edges, `alerts` choose."""

    def __init__(
        self, index: int, head: PairHead, width: int, spaces: Spaces, alerts: Alerts | None = None
    ) -> None:
        super().__init__(spaces)
        self.name, self.passes_on = f"edge-{index}", False
        self.head, self.width, self.alerts = head.eval(), width, alerts

    def open(self, space: Space, part: int) -> PairState:
        return PairState(space, self.width)

    def step(self, part: int, topology: Topology, blocks: list[Block], moment: Moment) -> list[Block]:
        found = by_kind(blocks)
        out = list(found[OUTPUT])
        if self.head.edges:
            out += self._score_edges(part, topology, found, moment.anew)
            if gone := topology.gone_edges:
                time, arrival, *names = gone.columns
                out.append(_told(part, 0, 1, time, arrival, None, tuple(names), gone.blob))
        if found[ENDS]:
            out += self._answer(part, joined(found[ENDS]))
        return out

    def _score_edges(
        self, part: int, topology: Topology, found: list[list[Block]], anew: bool
    ) -> list[Block]:
        """Edges that came, and those of which an end has changed; tombstones of those that went."""
        state = self.state(part)
        state.follow()
        removes, leaves, adds = topology.removes, topology.leaves, topology.adds
        replicas = topology.replicas
        if replicas or adds:
            state.reserve(replicas.extent if replicas else 0, adds.extent if adds else 0)
        self._learn_names(state, topology.vertices, joined(found[NAMES]))
        out: list[Block] = []
        gone = remove_edges(state.adjacency, removes, leaves)
        if gone is not None:
            out += self._tombstones(state, part, gone)
        for block in found[VALUES]:
            slot, time, arrival, fresh = block.columns
            sides = (*state.adjacency.out, *state.adjacency.into)
            self.metrics["messages"] += _touch_edges(
                slot, fresh, time, arrival, state.values.data, *sides, state.touched
            )
        if adds:
            slots, src, dst, time, arrival = adds.columns
            state.adjacency.add(slots, src, dst)
            touch_all(state.touched, slots, time, arrival)
        return out + self._scores(state, part, anew)

    def _learn_names(self, state: PairState, masters: Block | None, names: Block | None) -> None:
        top = len(state.values.data)
        if masters:
            state.keys.put(masters.columns[1], block_keys(masters), top)
        if names:
            state.keys.put(names.columns[0], block_keys(names), top)

    def _tombstones(self, state: PairState, part: int, gone: Removed) -> list[Block]:
        told = state.reported[gone.slot] != 0
        state.reported[gone.slot] = 0
        if not told.any():
            return []
        gone = Removed(*(column[told] for column in gone))
        return [self._block(part, state.keys, gone.src, gone.dst, 0, 1, gone.time, gone.arrival)]

    def _scores(self, state: PairState, part: int, anew: bool) -> list[Block]:
        touched, n = state.touched, size(state.touched)
        self.metrics["touched"] += n
        entries = touched[1 : n + 1]
        slots, time, arrival = (entries[:, column].copy() for column in (VERTEX, TIME, ARRIVAL))
        clear(touched)
        if not n:
            return []
        src, dst, _ = state.adjacency.ends(slots.astype(np.int32))  # edges that went were touched by nobody
        score = self._score(state.values.data, src, dst)
        changed = (score != state.score[slots]) | (state.reported[slots] == 0)
        state.score[slots] = score
        if anew:  # any of these may have been told of before
            state.reported[slots] = LAPSED
        worth = np.ones(len(slots), np.bool_)
        if self.alerts is not None and self.alerts.threshold is not None:
            worth = score >= self.alerts.threshold
        state.reported[slots] = remembered(worth, state.reported[slots])
        told = changed & worth
        if not told.any():
            return []
        src, dst, time, arrival, score = (column[told] for column in (src, dst, time, arrival, score))
        return [self._block(part, state.keys, src, dst, 0, 0, time, arrival, score)]

    def _answer(self, part: int, ends: Block | None) -> list[Block]:
        """The two ends of each query, found by its number."""
        assert ends is not None
        number, is_second, time, arrival, value = ends.columns[:5]
        by_number = np.argsort(number, kind="stable")
        src = by_number[is_second[by_number] == 0].astype(np.int32)
        dst = by_number[is_second[by_number] == 1].astype(np.int32)
        score = self._score(value, src, dst)
        self.metrics["answers"] += len(src)
        keys = block_keys(ends)
        return [self._block(part, keys, src, dst, 1, 0, time[dst], arrival[dst], score)]

    def _score(self, values: Floats, src: Ints32, dst: Ints32) -> Floats:
        out = np.empty(len(src), np.float32)
        with torch.inference_mode():
            for begin in range(0, len(out), _MOST):
                some = slice(begin, begin + _MOST)
                one, other = (torch.from_numpy(values[rows[some]]) for rows in (src, dst))
                out[some] = self.head.score(one, other).numpy()
        return out

    def _block(
        self, part: int, keys: KeyColumn | Keys, src: Ints32, dst: Ints32, asked: int, deleted: int,
        time: Ints, arrival: Ints, score: Floats | None = None,
    ) -> Block:  # fmt: skip
        names, blob = pair_columns(keys.take(src), keys.take(dst))
        return _told(part, asked, deleted, time, arrival, score, names, blob)


def _told(
    part: int, asked: int, deleted: int, time: Array, arrival: Array, score: Floats | None,
    names: tuple[Array, ...], blob: Bytes | None,
) -> Block:  # fmt: skip
    """What comes out of pairs; NaN for those that have no score any more."""
    flags = (np.full(len(time), flag, np.uint8) for flag in (asked, deleted))
    known = np.full(len(time), np.nan, np.float32) if score is None else score
    return Block(PAIRS, part, part, (*flags, time, arrival, known, *names), blob=blob)


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
