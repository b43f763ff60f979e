"""Vertex l: the masters of x(l); joins partials, renews values, hands them to the replicas that need them."""

from __future__ import annotations

import numpy as np
import torch

from d3gnn.events.keys import Keys
from d3gnn.events.schema import GraphSchema
from d3gnn.kernel.aggregators import Aggregator, Attention, Degrees, aggregator_of
from d3gnn.kernel.alerts import LAPSED, Alerts
from d3gnn.kernel.arrays import Space
from d3gnn.kernel.blocks import (
    ENDS,
    FEATURES,
    NAMES,
    OUTPUT,
    PARTIALS,
    ROOTS,
    VALUES,
    Block,
    Kind,
    block_keys,
    by_kind,
    joined,
    key_columns,
)
from d3gnn.kernel.operators import masters as m
from d3gnn.kernel.operators.base import Moment, Operator, Spaces
from d3gnn.kernel.operators.pairs import Scored
from d3gnn.kernel.operators.sheets import FEW, News, Sheets
from d3gnn.kernel.topology import Topology
from d3gnn.kernel.touched import size, sort, touch_all, touch_rows
from d3gnn.kernel.windows import Window
from d3gnn.kernel.windows.pending import Pending
from d3gnn.nn.heads import Head
from d3gnn.nn.layer import DEGREE_WIDTH, Layer
from d3gnn.types import FLOAT32, INT32, Array, Bools, Doubles, Floats, Ints, Ints32

_NOTHING32 = np.zeros(0, np.int32)


#: Where a layer's update finds roots and aggregates of so many rows, as arrays (with room for one sum) and
#: as tensors over them; and where a few new values are put. Those for few rows are kept: making them takes
#: longer than such an update. So are those for the most rows that are updated at once: as many as stay in the
#: processor's caches.
_Desk = tuple[tuple[Floats, Floats, Doubles], tuple[torch.Tensor, torch.Tensor], Floats]
_SMALL = 16
_MOST = 4096


class Vertex(Operator[m.VertexState]):
    """Masters after layer `index`: `layer` made their values (None at Vertex 0), `following` takes them.

    In its window, changed masters wait to be computed and sent. Changes of no more than `epsilon` since a
    value was sent do not travel on. With `degrees`, Vertex 0 takes the degrees
    that Edge 0 counts into the rows of its values, behind the features.

    The last one knows ids: it tells of its values, unless told not to, and sends them to answer queries.
    """

    def __init__(
        self,
        index: int,
        parts: int,
        schema: GraphSchema,
        layer: Layer | None,
        following: Layer | None,
        spaces: Spaces,
        window: Window | None = None,
        degrees: bool = False,
        epsilon: float = 0.0,
        head: Head | None = None,
        alerts: Alerts | None = None,
        tells: bool = True,
    ) -> None:
        super().__init__(spaces, window)
        self.name = f"vertex-{index}"
        self.parts, self.layer, self.following = parts, layer, following
        self._aggregator: Aggregator | None = None
        if layer is not None:
            self._aggregator = aggregator_of(layer)
        elif degrees:
            self._aggregator = Degrees()
        self._features, self.epsilon = schema.width, epsilon
        self.head, self.alerts = head, alerts
        self._is_last = following is None or isinstance(following, Scored)
        self._tells, self.passes_on = self._is_last and tells, following is not None
        self.width = layer.out_width if layer else schema.width + (DEGREE_WIDTH if degrees else 0)
        ends = np.cumsum([0, *schema.features.values()])
        self._feature_ends = np.stack([ends[:-1], ends[1:]], 1).astype(np.int64)
        self._desks: dict[int, _Desk] = {}
        # With one part there is nothing to put together.
        self._sheets = None if following is None or parts == 1 else Sheets(parts, following.message_width)
        self._news = None if not self._tells or head is not None or parts == 1 else News(self.width)

    def open(self, space: Space, part: int) -> m.VertexState:
        layer, aggregator = self.layer, self._aggregator
        root = layer.root_width if layer else 0
        state = aggregator.state_width(layer.message_width if layer else 1) if aggregator else 0
        return m.VertexState(space, self.width, root, state, self.open_window(space), self.alerts is not None)

    def pending(self, part: int) -> Pending | None:
        return self.state(part).pending

    def together(self, source: int = 0) -> list[Block]:
        blocks = [] if self._sheets is None else self._sheets.take(source)
        return blocks if self._news is None else blocks + self._news.take(source)

    def step(self, part: int, topology: Topology, blocks: list[Block], moment: Moment) -> list[Block]:
        vertices, sources, drops = topology.vertices, topology.sources, topology.drops
        if not (self.layer or self.window or blocks or vertices or sources or drops):
            return []  # new edges between known vertices, say
        state = self.state(part)
        state.follow()
        found = by_kind(blocks)
        self._take_topology(state, vertices, drops)
        if self.layer is None:
            self._take_features(state, joined(found[FEATURES]))
            self._take_values(state, [], found[PARTIALS])
            due = self._wait(state, moment, vertices, drops)
            if self._aggregator is not None:
                degrees = (state.touched, *state.partials, self._aggregator.codes)
                m.take_degrees(*degrees, self._features, state.rows.value)
            changed = m.room_for(due, self.width)
            m.hand_over(state.touched, state.rows.value, state.rows.unsent, *changed)
        else:
            self._take_values(state, found[ROOTS], found[PARTIALS])
            changed = self._renew(state, self.layer, self._wait(state, moment, vertices, drops))
        n = len(changed[0])
        self.metrics["touched"] += n
        out: list[Block] = []
        if self.following is not None and (n or sources is not None):
            out = self._send(state, part, sources, self.following, *changed)
        if self._is_last:
            if self._tells and (n or drops is not None):
                out += self._output(state, part, drops, moment.anew, *changed)
            if self._tells and (gone := topology.gone):
                out.append(self._tombstones(part, gone))
            if queries := topology.queries:
                out += self._ends(state, part, queries)
        return out

    def values(self, part: int, rows: Array) -> Floats:
        """x(l) of masters, by row."""
        state = self.state(part)
        state.follow()
        return state.rows.value[rows]

    def _take_topology(self, state: m.VertexState, vertices: Block | None, drops: Block | None) -> None:
        """New masters, and masters that go."""
        if vertices is not None:
            state.reserve_rows(vertices.extent)
            row, slot, seeds, time, arrival = vertices.columns[:5]
            rows = state.rows
            if self.layer is None:
                columns = (rows.slot, rows.unsent, rows.seed, rows.value)
                m.start(row, slot, seeds, time, arrival, self._features, *columns, state.touched)
            else:
                m.settle(row, slot, rows.slot, rows.unsent)
            if self._is_last:
                state.keys.put(row, block_keys(vertices), vertices.extent)
        if drops is not None:
            gone, rows = drops.columns[0], state.rows
            first_partial, partials, _ = state.partials
            m.drop(gone, *state.links, first_partial, partials, state.space.counters)
            rows.value[gone], rows.root[gone], rows.unsent[gone] = 0, 0, 0

    def _take_features(self, state: m.VertexState, features: Block | None) -> None:
        """x(0): features over the initial value."""
        if features is not None:
            row, feature, time, arrival, value = features.columns
            m.take_features(
                row, feature, value, self._features, self._feature_ends, state.rows.seed, state.rows.value
            )
            touch_all(state.touched, row, time, arrival)

    def _take_values(self, state: m.VertexState, roots: list[Block], partials: list[Block]) -> None:
        for block in roots:
            row, time, arrival, root = block.columns
            touch_rows(state.touched, row, time, arrival, root, state.rows.root)
        if partials:
            state.reserve_partials(sum(map(len, partials)))
            kept, counters, touched = state.partials, state.space.counters, state.touched
            for block in partials:
                row, count, time, arrival, partial = block.columns
                m.take_partials(
                    block.source, block.full, row, count, time, arrival, partial, *kept, counters, touched
                )

    def _wait(self, state: m.VertexState, moment: Moment, vertices: Block | None, drops: Block | None) -> int:
        """In place of the touched masters come those whose time has come, a first value without waiting; how
        many these are.
        """
        if state.pending is None:
            return size(state.touched)
        if drops is not None:
            state.pending.cancel(drops.columns[0])
        # What is new was touched by its first value.
        new = 0 if vertices is None else len(vertices)
        return self.hold(state.pending, state.touched, moment, state.rows.unsent, new)

    def _renew(self, state: m.VertexState, layer: Layer, n: int) -> m.Changed:
        """psi of every touched master, n of them; those whose value stays the same are left out."""
        rows, touched = state.rows, state.touched
        changed = m.room_for(n, self.width)
        if not n:
            return changed
        if n <= _SMALL and layer.affine is not None:
            (root, aggregate, total), _, fresh = self._desk(n, layer)
            first, partials, states = state.partials
            left, right, bias, relu = layer.affine
            assert self._aggregator is not None
            kept = m.renew_few(
                touched, rows.root, first, partials, states, self._aggregator.codes, root, aggregate, total,
                left, right, bias, relu, fresh, self.epsilon, rows.value, rows.unsent, *changed,
            )  # fmt: skip
        else:
            kept = self._renew_many(state, layer, n, changed)
        if kept == n:
            return changed
        row, value, time, arrival = changed
        return row[:kept], value[:kept], time[:kept], arrival[:kept]

    def _renew_many(self, state: m.VertexState, layer: Layer, n: int, changed: m.Changed) -> int:
        rows, touched, kept = state.rows, state.touched, 0
        sort(touched)
        for begin in range(0, n, _MOST):
            arrays, tensors, _ = self._desk(min(_MOST, n - begin), layer)
            self._join(state, begin, arrays)
            with torch.inference_mode():
                fresh = layer.update(*tensors).numpy()
            kept = m.renew(begin, kept, fresh, self.epsilon, rows.value, rows.unsent, touched, *changed)
        return kept

    def _join(self, state: m.VertexState, begin: int, arrays: tuple[Floats, Floats, Doubles]) -> None:
        touched, roots, aggregator = state.touched, state.rows.root, self._aggregator
        assert aggregator is not None
        if isinstance(aggregator, Attention):
            heads, channels = aggregator.spec.heads, aggregator.spec.channels
            m.join_attention(begin, touched, roots, *state.partials, heads, channels, *arrays)
        else:
            m.join_partials(begin, touched, roots, *state.partials, aggregator.codes, *arrays)

    def _desk(self, rows: int, layer: Layer) -> _Desk:
        desk = self._desks.get(rows)
        if desk is None:
            root = np.empty((rows, layer.root_width), FLOAT32)
            aggregate = np.empty((rows, layer.aggregate_width), FLOAT32)
            total = np.empty(layer.aggregate_width)
            fresh = np.empty((rows if rows <= _SMALL else 0, layer.out_width), FLOAT32)
            desk = (root, aggregate, total), (torch.from_numpy(root), torch.from_numpy(aggregate)), fresh
            if rows <= _SMALL or rows == _MOST:
                self._desks[rows] = desk
        return desk

    def _send(
        self, state: m.VertexState, part: int, sources: Block | None, following: Layer,
        row: Ints32, value: Floats, time: Ints, arrival: Ints,
    ) -> list[Block]:  # fmt: skip
        """Changed values to every replica that is a source; to new sources, theirs, changed or not."""
        message = self._message(following, value)
        blocks: list[Block] = []
        if self._sheets is None:  # all sources are masters: every row goes to its own slot
            blocks.append(Block(VALUES, part, part, (state.rows.slot[row], time, arrival, message)))
        else:
            new = self._new_sources(state, sources, following)
            changed = (row, time, arrival, message)
            self._sheets.write(part, changed, new, state.rows.slot, state.links)
        if sources is not None:
            new_row, new_part, new_slot = sources.columns
            if self._is_last:
                blocks += self._by_part(NAMES, part, new_part, (new_slot,), state.keys.take(new_row))
            state.reserve_links(len(sources))
            m.link(new_row, new_part, new_slot, *state.links, state.space.counters)
        if not following.sends_value and len(row):
            with torch.inference_mode():
                root = following.root(torch.from_numpy(value)).numpy()
            blocks.append(Block(ROOTS, part, part, (row, time, arrival, root)))
        return blocks

    def _message(self, following: Layer, value: Floats) -> Floats:
        """A layer that sends the value itself has nothing to compute for its message."""
        if following.sends_value:
            return value
        with torch.inference_mode():
            message: Floats = following.message(torch.from_numpy(value)).numpy()
            return message

    def _new_sources(
        self, state: m.VertexState, sources: Block | None, following: Layer
    ) -> tuple[Ints32, Ints32, Ints32, Floats]:
        """Parts and slots of replicas that are sources now, and which of these messages are theirs."""
        values: Floats = state.rows.value
        if sources is None:
            return _NOTHING32, _NOTHING32, _NOTHING32, values
        row, part, slot = sources.columns
        if following.sends_value:
            return part, slot, row, values
        return part, slot, np.arange(len(row), dtype=INT32), self._message(following, values[row])

    def _ends(self, state: m.VertexState, part: int, queries: Block) -> list[Block]:
        """What those who answer queries have to know of masters here."""
        row, number, is_second, answering, time, arrival = queries.columns
        columns = (number, is_second, time, arrival, state.rows.value[row])
        return self._by_part(ENDS, part, answering, columns, state.keys.take(row))

    def _by_part(
        self, kind: Kind, part: int, target: Ints32, columns: tuple[Array, ...], keys: Keys
    ) -> list[Block]:
        """A block with keys for each part that there is something for."""
        blocks = []
        for to in np.unique(target).tolist():
            mine = np.flatnonzero(target == to)
            key, blob = key_columns(keys.take(mine))
            blocks.append(Block(kind, part, to, (*(column[mine] for column in columns), key), blob=blob))
        return blocks

    def _output(
        self, state: m.VertexState, part: int, drops: Block | None, anew: bool,
        row: Ints32, value: Floats, time: Ints, arrival: Ints,
    ) -> list[Block]:  # fmt: skip
        news, keys = self._news, state.keys.ints
        if news is not None and keys is not None and drops is None and len(row) <= FEW:
            news.write(row, value, time, arrival, keys)
            return []
        said: Floats | None = None
        if self.head is not None:
            with torch.inference_mode():
                said = self.head.predict(torch.from_numpy(value)).numpy()
            if self.alerts is not None:
                if anew:  # any of these may have been told of before
                    state.reported[row] = LAPSED
                chosen = self.alerts.choose(said, row, state.reported)
                row, value, said = row[chosen], value[chosen], said[chosen]
                time, arrival = time[chosen], arrival[chosen]
        deleted = np.zeros(len(row), np.uint8)
        if drops:
            told = self._told(state, drops)
            gone, tombstone, when, came = (column[told] for column in drops.columns)
            row, deleted = np.concatenate([row, gone]), np.concatenate([deleted, tombstone])
            time, arrival = np.concatenate([time, when]), np.concatenate([arrival, came])
            value = np.concatenate([value, np.zeros((len(gone), self.width), np.float32)])
            if said is not None:
                said = np.concatenate([said, np.full((len(gone), 2), np.nan, np.float32)])
        if not len(row):
            return []
        key, blob = key_columns(state.keys.take(row))
        more = () if said is None else (said,)
        return [Block(OUTPUT, part, part, (deleted, time, arrival, value, *more, key), blob=blob)]

    def _told(self, state: m.VertexState, drops: Block) -> Bools:
        """Of which deleted masters to tell; with alerts, only of those that ever were among them."""
        told: Bools = drops.columns[1] > 0
        if self.alerts is not None:
            gone = drops.columns[0]
            told &= state.reported[gone] != 0
            state.reported[gone] = 0
        return told

    def _tombstones(self, part: int, gone: Block) -> Block:
        """For vertices that are known here by nothing but their ids."""
        time, arrival, keys = gone.columns
        value = np.zeros((len(gone), self.width), np.float32)
        said = () if self.head is None else (np.full((len(gone), 2), np.nan, np.float32),)
        columns = (np.ones(len(gone), np.uint8), time, arrival, value, *said, keys)
        return Block(OUTPUT, part, part, columns, blob=gone.blob)
