"""Vertex l: the masters of x(l); joins partials, renews values, hands them to the replicas that need them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch

from d3gnn.events.schema import GraphSchema
from d3gnn.kernel.aggregators import aggregator
from d3gnn.kernel.arrays import Space
from d3gnn.kernel.blocks import (
    TOPOLOGY,
    Block,
    Kind,
    block_keys,
    by_kind,
    joined,
    key_columns,
)
from d3gnn.kernel.compiled import compiled, lean
from d3gnn.kernel.hashing import fill_initial
from d3gnn.kernel.ids import KeyColumn
from d3gnn.kernel.operators.base import Operator, Spaces
from d3gnn.kernel.touched import NEVER, Touched, clear, make_touched, touch, touch_all
from d3gnn.nn.layer import Layer
from d3gnn.types import Array, Bytes, Floats, Hashes, Ints, Ints32

_NOTHING32 = np.zeros(0, np.int32)
_NOTHING = (_NOTHING32, _NOTHING32, _NOTHING32)
_LINKS, _FREE_LINK, _PARTIALS, _FREE_PARTIAL, _KEYS = 0, 1, 2, 3, 4


class Masters(NamedTuple):
    """Views of a part's arrays, by row."""

    value: Floats  # x(l)
    root: Floats  # what the layer keeps of x(l-1)
    slot: Ints32  # where in its own part the vertex is
    unsent: Bytes  # 1 for a vertex that was never sent
    seed: Hashes
    links: Ints32  # first link of the row's replicas, plus 1
    link_part: Ints32
    link_slot: Ints32
    link_next: Ints32
    partials: Ints32  # first of the row's partials, plus 1
    partial_part: Ints32
    partial_count: Ints32
    partial_next: Ints32
    partial_state: Floats


class VertexState:
    """What a part of Vertex l knows."""

    def __init__(self, space: Space, width: int, root_width: int, state_width: int) -> None:
        self.space = space
        self._rows = [
            space.array("value", np.float32, width),
            space.array("root", np.float32, root_width),
            space.array("slot", np.int32),
            space.array("unsent", np.uint8),
            space.array("seed", np.uint64),
            space.array("links", np.int32),
        ]
        self._links = [space.array(f"link_{name}", np.int32) for name in ("part", "slot", "next")]
        self._heads = space.array("partials", np.int32)
        self._partials = [
            *(space.array(f"partial_{name}", np.int32) for name in ("part", "count", "next")),
            space.array("partial_state", np.float32, state_width),
        ]
        self.keys = KeyColumn(space, "key", space.counters[_KEYS : _KEYS + 3])
        self.touched = make_touched(0)
        self._generation = -1
        self.reserve(1, 1, 1)

    def reserve(self, rows: int, links: int, partials: int) -> None:
        """Room for rows below `rows`, and for so many more links and partials."""
        if rows > len(self._heads.data):
            for array in (*self._rows, self._heads):
                array.reserve(rows)
        for array in self._links:
            array.reserve(int(self.space.counters[_LINKS]) + links)
        for array in self._partials:
            array.reserve(int(self.space.counters[_PARTIALS]) + partials)
        if len(self.touched.mark) < len(self._heads.data):
            self.touched = make_touched(len(self._heads.data))

    @property
    def masters(self) -> Masters:
        if self._generation != self.space.generation:
            arrays = (*self._rows, *self._links, self._heads, *self._partials)
            self._masters = Masters(*(array.data for array in arrays))
            self._generation = self.space.generation
        return self._masters


class Vertex(Operator[VertexState]):
    """Masters after layer `index`: `layer` made their values (None at Vertex 0), `following` takes them."""

    def __init__(
        self,
        index: int,
        parts: int,
        schema: GraphSchema,
        layer: Layer | None,
        following: Layer | None,
        spaces: Spaces,
    ) -> None:
        super().__init__(spaces)
        self.name = f"vertex-{index}"
        self.parts, self.layer, self.following = parts, layer, following
        self.width = layer.out_width if layer else schema.width
        self._divides = bool(layer) and aggregator(layer.aggregator).divides  # type: ignore[union-attr]
        widths = list(schema.features.values())
        self._feature_ends = np.array([np.cumsum([0, *widths])[:-1], np.cumsum(widths)], np.int64).T.copy()

    def open(self, space: Space, part: int) -> VertexState:
        layer = self.layer
        root, state = (layer.root_width, layer.message_width) if layer else (0, 0)
        return VertexState(space, self.width, root, state)

    def process(self, part: int, blocks: Iterable[Block]) -> list[Block]:
        state = self.state(part)
        blocks = list(blocks)
        found = by_kind(blocks)
        vertices, drops = joined(found.get(Kind.VERTICES)), joined(found.get(Kind.DROPS))
        sources = joined(found.get(Kind.SOURCES)) if self.following else None
        partials = found.get(Kind.PARTIALS, [])
        state.reserve(
            vertices.extent if vertices else 0,
            len(sources) if sources else 0,
            sum(map(len, partials)),
        )
        if vertices:
            self._create(state, vertices)
        if drops:
            _drop(drops.columns[0], state.masters, state.space.counters)
        if sources:
            _link(*sources.columns, state.masters, state.space.counters)
        if self.layer is None:
            self._take_features(state, vertices, joined(found.get(Kind.FEATURES)))
        else:
            for roots in found.get(Kind.ROOTS, []):
                row, time, arrival, root = roots.columns
                state.masters.root[row] = root
                touch_all(state.touched, row, time, arrival)
            for block in partials:
                _take_partials(
                    block.source, block.full, *block.columns, state.masters, state.space.counters, state.touched
                )
            if state.touched.count[0]:
                self._renew(state)
        self.metrics["touched"] += int(state.touched.count[0])
        if self.following is None:
            out = self._output(state, part, drops)
        else:
            out = [block for block in blocks if block.kind in TOPOLOGY]
            out.extend(self._send(state, part, sources, self.following))
        clear(state.touched)
        return out

    def values(self, part: int, rows: Array) -> Floats:
        """x(l) of masters, by row."""
        return self.state(part).masters.value[rows]

    def _create(self, state: VertexState, vertices: Block) -> None:
        row, slot, seed = vertices.columns[:3]
        masters = state.masters
        masters.slot[row] = slot
        masters.unsent[row] = 1
        if self.layer is None:
            masters.seed[row] = seed
        if self.following is None:
            state.keys.put(row, block_keys(vertices))

    def _take_features(self, state: VertexState, vertices: Block | None, features: Block | None) -> None:
        masters, touched = state.masters, state.touched
        if vertices:
            row, _, _, time, arrival = vertices.columns[:5]
            _start(row, masters)
            touch_all(touched, row, time, arrival)
        if features:
            row, feature, time, arrival, value = features.columns
            _take_features(row, feature, value, self._feature_ends, masters)
            touch_all(touched, row, time, arrival)

    def _renew(self, state: VertexState) -> None:
        """psi of every touched master; those whose value stays the same are touched no longer."""
        assert self.layer is not None
        touched, masters = state.touched, state.masters
        root, aggregate = _join_partials(touched, masters, self._divides)
        fresh = self.layer.update(torch.from_numpy(root), torch.from_numpy(aggregate)).numpy()
        _keep_changed(fresh, masters, touched)

    def _send(
        self, state: VertexState, part: int, sources: Block | None, following: Layer
    ) -> list[Block]:
        """Changed values to every replica that is a source, and unchanged ones to new sources only."""
        touched, masters = state.touched, state.masters
        columns = sources.columns if sources else _NOTHING
        if not touched.count[0] and not len(columns[0]):
            return []
        changed = int(touched.count[0])
        pick, slot, ends = _address(part, self.parts, *columns, touched, masters)
        rows = touched.vertices[: touched.count[0]]
        time, arrival = touched.time[: len(rows)], touched.arrival[: len(rows)]
        x = torch.from_numpy(masters.value[rows])
        message = following.message(x).numpy()
        masters.unsent[rows[:changed]] = 0
        blocks = []
        begin = 0
        for target in range(self.parts):
            end = int(ends[target])
            if end > begin:
                mine = pick[begin:end]
                if len(rows) == end - begin == changed and target == part:  # in order, each once
                    picked = (time.copy(), arrival.copy(), message)
                else:
                    picked = (time[mine], arrival[mine], message[mine])
                blocks.append(Block(Kind.VALUES, part, target, (slot[begin:end], *picked)))
            begin = end
        if not following.sends_value and changed:
            root = following.root(x[:changed]).numpy()
            mine = (rows[:changed].copy(), time[:changed].copy(), arrival[:changed].copy(), root)
            blocks.append(Block(Kind.ROOTS, part, part, mine))
        return blocks

    def _output(self, state: VertexState, part: int, drops: Block | None) -> list[Block]:
        touched, masters = state.touched, state.masters
        rows = touched.vertices[: touched.count[0]].copy()
        deleted = np.zeros(len(rows), np.uint8)
        time, arrival = touched.time[: len(rows)].copy(), touched.arrival[: len(rows)].copy()
        masters.unsent[rows] = 0
        if drops:
            row, tombstone, when, came = (c[drops.columns[1] > 0] for c in drops.columns)
            rows, deleted = np.concatenate([rows, row]), np.concatenate([deleted, tombstone])
            time, arrival = np.concatenate([time, when]), np.concatenate([arrival, came])
        if not len(rows):
            return []
        keys, blob = key_columns(state.keys.take(rows))
        return [Block(Kind.OUTPUT, part, part, (deleted, time, arrival, masters.value[rows], keys), blob=blob)]


@compiled
def _start(rows: Ints32, masters: Masters) -> None:
    for row in rows:
        fill_initial(masters.seed[row], masters.value[row])


@compiled
def _take_features(
    rows: Ints32, feature: Ints32, values: Floats, ends: Ints, masters: Masters
) -> None:
    initial = np.empty(masters.value.shape[1], np.float32)
    for i in range(len(rows)):
        row = rows[i]
        if feature[i] >= 0:
            begin, end = ends[feature[i], 0], ends[feature[i], 1]
            masters.value[row, begin:end] = values[i, : end - begin]
        else:
            begin, end = ends[-1 - feature[i], 0], ends[-1 - feature[i], 1]
            fill_initial(masters.seed[row], initial)
            masters.value[row, begin:end] = initial[begin:end]


@lean
def _link(rows: Ints32, parts: Ints32, slots: Ints32, masters: Masters, counters: Ints) -> None:
    for i in range(len(rows)):
        at = counters[_FREE_LINK] - 1
        if at >= 0:
            counters[_FREE_LINK] = masters.link_next[at]
        else:
            at = counters[_LINKS]
            counters[_LINKS] += 1
        masters.link_part[at] = parts[i]
        masters.link_slot[at] = slots[i]
        masters.link_next[at] = masters.links[rows[i]]
        masters.links[rows[i]] = at + 1


@compiled
def _drop(rows: Ints32, masters: Masters, counters: Ints) -> None:
    """A deleted master gives back its links and partials."""
    for row in rows:
        while masters.links[row] > 0:
            at = masters.links[row] - 1
            masters.links[row] = masters.link_next[at]
            masters.link_next[at] = counters[_FREE_LINK]
            counters[_FREE_LINK] = at + 1
        while masters.partials[row] > 0:
            at = masters.partials[row] - 1
            masters.partials[row] = masters.partial_next[at]
            _free_partial(at, masters, counters)
        masters.value[row] = 0
        masters.root[row] = 0
        masters.unsent[row] = 0


@lean
def _free_partial(at: int, masters: Masters, counters: Ints) -> None:
    masters.partial_part[at] = -1
    masters.partial_next[at] = counters[_FREE_PARTIAL]
    counters[_FREE_PARTIAL] = at + 1


@lean
def _unlink_partial(row: int, source: int, masters: Masters, counters: Ints) -> None:
    before = -1
    at = masters.partials[row] - 1
    while at >= 0:
        if masters.partial_part[at] == source:
            if before < 0:
                masters.partials[row] = masters.partial_next[at]
            else:
                masters.partial_next[before] = masters.partial_next[at]
            _free_partial(at, masters, counters)
            return
        before = at
        at = masters.partial_next[at] - 1


@lean
def _take_partials(
    source: int, full: bool, rows: Ints32, counts: Ints32, time: Ints, arrival: Ints, state: Floats,
    masters: Masters, counters: Ints, touched: Touched,
) -> None:  # fmt: skip
    width = state.shape[1]
    if full:
        for row in range(len(masters.partials)):
            if masters.partials[row] > 0:
                _unlink_partial(row, source, masters, counters)
    for i in range(len(rows)):
        row = rows[i]
        if arrival[i] != NEVER:
            touch(touched, row, time[i], arrival[i])
        if counts[i] == 0:
            _unlink_partial(row, source, masters, counters)
            continue
        at = masters.partials[row] - 1
        while at >= 0 and masters.partial_part[at] != source:
            at = masters.partial_next[at] - 1
        if at < 0:
            at = counters[_FREE_PARTIAL] - 1
            if at >= 0:
                counters[_FREE_PARTIAL] = masters.partial_next[at]
            else:
                at = counters[_PARTIALS]
                counters[_PARTIALS] += 1
            masters.partial_part[at] = source
            masters.partial_next[at] = masters.partials[row]
            masters.partials[row] = at + 1
        masters.partial_count[at] = counts[i]
        for k in range(width):
            masters.partial_state[at, k] = state[i, k]


@compiled
def _join_partials(touched: Touched, masters: Masters, divides: bool) -> tuple[Floats, Floats]:
    """Root and aggregate of every touched master."""
    n = touched.count[0]
    root_width, width = masters.root.shape[1], masters.partial_state.shape[1]
    root, aggregate = np.empty((n, root_width), np.float32), np.empty((n, width), np.float32)
    total = np.empty(width, np.float64)
    for i in range(n):
        row = touched.vertices[i]
        for k in range(root_width):
            root[i, k] = masters.root[row, k]
        total[:] = 0.0
        count = 0
        at = masters.partials[row] - 1
        while at >= 0:
            for k in range(width):
                total[k] += masters.partial_state[at, k]
            count += masters.partial_count[at]
            at = masters.partial_next[at] - 1
        scale = 1.0 / count if divides and count > 0 else 1.0
        for k in range(width):
            aggregate[i, k] = total[k] * scale
    return root, aggregate


@lean
def _keep_changed(fresh: Floats, masters: Masters, touched: Touched) -> None:
    """Store new values; take rows whose value did not change off the list, unless they were never sent."""
    width = fresh.shape[1]
    kept = 0
    for i in range(touched.count[0]):
        row = touched.vertices[i]
        changed = masters.unsent[row] == 1
        for k in range(width):
            changed |= fresh[i, k] != masters.value[row, k]
            masters.value[row, k] = fresh[i, k]
        touched.mark[row] = 0
        if changed:
            touched.vertices[kept] = row
            touched.time[kept] = touched.time[i]
            touched.arrival[kept] = touched.arrival[i]
            touched.mark[row] = kept + 1
            kept += 1
    touched.count[0] = kept


@compiled
def _address(
    part: int, parts: int, source_rows: Ints32, source_parts: Ints32, source_slots: Ints32,
    touched: Touched, masters: Masters,
) -> tuple[Ints32, Ints32, Ints]:  # fmt: skip
    """Who gets which row: places in the list and target slots, by target part.

    Rows of new sources that did not change join the list at its end.
    """
    changed = touched.count[0]
    ends = np.zeros(parts + 1, np.int64)
    for i in range(changed):
        ends[part + 1] += 1
        at = masters.links[touched.vertices[i]] - 1
        while at >= 0:
            ends[masters.link_part[at] + 1] += 1
            at = masters.link_next[at] - 1
    for i in range(len(source_rows)):
        mark = touched.mark[source_rows[i]]
        if mark == 0 or mark > changed:
            touch(touched, source_rows[i], -NEVER, NEVER)
            ends[source_parts[i] + 1] += 1
    for p in range(parts):
        ends[p + 1] += ends[p]
    pick, slot = np.empty(ends[parts], np.int32), np.empty(ends[parts], np.int32)
    fill = ends[:parts].copy()
    for i in range(changed):
        row = touched.vertices[i]
        pick[fill[part]], slot[fill[part]] = i, masters.slot[row]
        fill[part] += 1
        at = masters.links[row] - 1
        while at >= 0:
            p = masters.link_part[at]
            pick[fill[p]], slot[fill[p]] = i, masters.link_slot[at]
            fill[p] += 1
            at = masters.link_next[at] - 1
    for i in range(len(source_rows)):
        mark = touched.mark[source_rows[i]]
        if mark > changed:
            p = source_parts[i]
            pick[fill[p]], slot[fill[p]] = mark - 1, source_slots[i]
            fill[p] += 1
    return pick, slot, ends[1:]
