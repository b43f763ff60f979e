"""The current graph as plain arrays, for systems that recompute after every batch."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from d3gnn.bench.edge_index import EDGE_COUNT, INDEXED_COUNT, apply_edges, index_edges
from d3gnn.events import Element, EventBatch, GraphSchema, Op
from d3gnn.events.check import check, feature_index, order
from d3gnn.events.keys import IntKeys, Keys, concat_keys
from d3gnn.kernel.compiled import compiled
from d3gnn.kernel.hashing import fill_initial, hash_keys
from d3gnn.kernel.ids import IdTable
from d3gnn.kernel.part_state import PartState
from d3gnn.types import Floats, Hashes, Ints, Ints32, Small

_NEVER = int(np.iinfo(np.int64).min)


@dataclass(frozen=True)
class Change:
    """The net changes of a batch, as rows; an edge that was created and deleted in it is not included."""

    added_src: Ints
    added_dst: Ints
    removed_src: Ints
    removed_dst: Ints
    #: Rows with a new or changed input, in ascending order.
    inputs: Ints
    #: Number of vertices before the batch; later rows are new.
    vertices_before: int

    @property
    def sources(self) -> Ints:
        """The sources of added and removed edges."""
        return np.concatenate([self.added_src, self.removed_src])

    @property
    def targets(self) -> Ints:
        """The destinations of added and removed edges: their in-neighbourhoods changed."""
        return np.concatenate([self.added_dst, self.removed_dst])


class _Rows(NamedTuple):
    """The valid events of a batch, in the order of application; -1 stands for a missing vertex."""

    position: Ints
    op: Small
    element: Small
    src: Ints
    dst: Ints


class LiveGraph:
    """The graph after all batches so far; vertices are rows, in order of creation.

    It applies and skips the same events as the oracle, in the same order, but on arrays. It supports no
    vertex deletes, keyed edges or edge features.

    >>> graph = LiveGraph(GraphSchema(features={"x": 2}))
    >>> change = graph.apply(EventBatch.edges([30, 30, 10], [10, 10, 20]))
    >>> graph.keys().to_list(), graph.src.tolist(), graph.dst.tolist(), change.inputs.tolist()
    ([30, 10, 20], [0, 1], [1, 2], [0, 1, 2])
    """

    def __init__(self, schema: GraphSchema) -> None:
        if schema.edges == "keyed" or schema.edge_features:
            raise ValueError("peers support no keyed edges and no edge features: use a schema without them")
        self.schema = schema
        space = PartState()
        self._id_type: type[Keys] | None = None
        self._ids = IdTable(space, "id")
        self._inputs = space.array("inputs", np.float32, schema.width)
        self._times = space.array("times", np.int64, len(schema.features))
        self._src, self._dst = space.array("src", np.int64), space.array("dst", np.int64)
        self._counts = np.zeros(2, np.int64)
        #: The arrays of `edge_index`.
        self._older = space.array("older", np.int32)
        self._table: Ints32 = np.zeros(0, np.int32)

    def __len__(self) -> int:
        """The number of vertices."""
        return len(self._ids)

    @property
    def edge_count(self) -> int:
        """The number of directed edges; an undirected edge counts twice."""
        return int(self._counts[EDGE_COUNT])

    @property
    def src(self) -> Ints:
        """The source row of each edge: a view, valid until the next batch."""
        return self._src.data[: self.edge_count]  # type: ignore[no-any-return]

    @property
    def dst(self) -> Ints:
        """The destination row of each edge: a view, valid until the next batch."""
        return self._dst.data[: self.edge_count]  # type: ignore[no-any-return]

    @property
    def inputs(self) -> Floats:
        """The inputs of the model [n, width]: a view, valid until the next batch."""
        return self._inputs.data[: len(self)]  # type: ignore[no-any-return]

    def keys(self) -> Keys:
        """The id of each row."""
        return self._ids.keys.take(np.arange(len(self)))

    def apply(self, batch: EventBatch) -> Change:
        """Apply one batch, and return its net changes."""
        before = len(self)
        rows = self._resolve(batch)
        deleted = (rows.element == Element.VERTEX) & (rows.op == Op.DELETE) & (rows.src >= 0)
        if deleted.any():
            raise ValueError(
                f"{batch.row(int(rows.position[deleted][0]))}: peers support no vertex deletes; "
                "use a stream without them"
            )
        self._init_new_vertices(before)
        changed = self._set_features(batch, rows, before)
        added, removed = self._change_edges(rows)
        return Change(*added, *removed, np.concatenate([changed, np.arange(before, len(self))]), before)

    def _resolve(self, batch: EventBatch) -> _Rows:
        """Map the ids of valid events to rows; events that create vertices get new rows."""
        good = (check(batch, self.schema) == 0) & (batch.element != Element.QUERY)
        is_edge = batch.element == Element.EDGE
        if good.any():
            self._id_type = self._id_type or type(batch.src)
        if type(batch.src) is not self._id_type:
            good[:] = False
        elif type(batch.dst) is not self._id_type:
            good &= ~is_edge
        # A forward pass needs no labels, and labels create no vertices.
        good &= batch.element != Element.LABEL
        position = order(batch)
        if position is not None:
            position = position[good[position]]
        elif not good.all():
            position = np.flatnonzero(good)
        op, element, src, dst = batch.op, batch.element, batch.src, batch.dst
        if position is None:
            position = np.arange(len(batch))
        else:
            op, element, is_edge = op[position], element[position], is_edge[position]
            src, dst = src.take(position), None if dst is None else dst.take(position)
        creates = op == Op.CREATE
        if dst is None or not is_edge.any():
            found = self._ids.intern(src, creates).astype(np.int64)
            return _Rows(position, op, element, found, np.full(len(found), -1))
        both = self._ids.intern(_interleave(src, dst), np.column_stack([creates, creates & is_edge]).ravel())
        ends = both.astype(np.int64).reshape(-1, 2)
        return _Rows(position, op, element, ends[:, 0], ends[:, 1])

    def _init_new_vertices(self, before: int) -> None:
        n = len(self)
        if n > before:
            self._inputs.reserve(n)
            self._times.reserve(n)
            self._inputs.data[before:n] = self._missing(np.arange(before, n))
            self._times.data[before:n] = _NEVER

    def _missing(self, rows: Ints) -> Floats:
        """The inputs of these vertices where they have no features."""
        inputs = np.empty((len(rows), self.schema.width), np.float32)
        if (missing := self.schema.missing_values()) is None:
            _fill(hash_keys(self._ids.keys.take(rows)), inputs)
        else:
            inputs[:] = missing
        return inputs

    def _set_features(self, batch: EventBatch, rows: _Rows, before: int) -> Ints:
        """Set features, last writer wins by time; the rows below `before` with a changed input."""
        about = ((rows.element == Element.VERTEX) | (rows.element == Element.FEATURE)) & (rows.src >= 0)
        has_value = np.zeros(len(batch), np.bool_)
        if batch.value_offsets is not None:
            has_value = np.diff(batch.value_offsets) > 0
        about &= has_value[rows.position] | (rows.element == Element.FEATURE)
        if not about.any():
            return np.zeros(0, np.int64)
        position, row, op = rows.position[about], rows.src[about], rows.op[about]
        which = feature_index(batch, self.schema)[position]
        touched = np.unique(row)
        old = self.inputs[touched].copy()
        widths = list(self.schema.features.values())
        for f, (begin, width) in enumerate(zip(accumulate(widths, initial=0), widths, strict=False)):
            winners = np.flatnonzero(which == f)
            # Events are ordered by time: only the last event of each row can win.
            _, last = np.unique(row[winners][::-1], return_index=True)
            winners = winners[len(winners) - 1 - last]
            winners = winners[batch.time[position[winners]] >= self._times.data[row[winners], f]]
            self._times.data[row[winners], f] = batch.time[position[winners]]
            column = self._inputs.data[:, begin : begin + width]
            is_set = op[winners] != Op.DELETE
            cleared, winners = row[winners[~is_set]], winners[is_set]
            if len(cleared):
                column[cleared] = self._missing(cleared)[:, begin : begin + width]
            if len(winners):
                assert batch.values is not None
                assert batch.value_offsets is not None
                first = batch.value_offsets[position[winners]]
                column[row[winners]] = batch.values[first[:, None] + np.arange(width)]
        changed: Ints = touched[(self.inputs[touched] != old).any(axis=1) & (touched < before)]
        return changed

    def _change_edges(self, rows: _Rows) -> tuple[tuple[Ints, Ints], tuple[Ints, Ints]]:
        """Create and delete edges; the net added and removed ones."""
        is_edge = (rows.element == Element.EDGE) & (rows.dst >= 0) & (rows.src >= 0)
        src, dst, removes = rows.src, rows.dst, rows.op == Op.DELETE
        if not is_edge.all():
            src, dst, removes = src[is_edge], dst[is_edge], removes[is_edge]
        if not self.schema.directed:
            back = np.column_stack([np.ones(len(src), np.bool_), src != dst]).ravel()
            src, dst = np.column_stack([src, dst]).ravel()[back], np.column_stack([dst, src]).ravel()[back]
            removes = np.repeat(removes, 2)[back]
        count, more = self.edge_count, len(src)
        if count + more >= np.iinfo(np.int32).max:
            raise ValueError(f"{count + more} edges: at most 2**31 are supported")
        self._src.reserve(count + more)
        self._dst.reserve(count + more)
        # The index is needed only for deletes and for simple graphs.
        if self.schema.edges != "simple" and not removes.any():
            self._src.data[count : count + more] = src
            self._dst.data[count : count + more] = dst
            self._counts[EDGE_COUNT] += more
            return (src, dst), (src[:0], dst[:0])
        self._index_edges(more)
        done = np.empty(more, np.bool_)
        apply_edges(
            src, dst, removes, self.schema.edges == "simple", self._src.data, self._dst.data,
            self._older.data, self._table, self._counts, done,
        )  # fmt: skip
        created, deleted = done & ~removes, done & removes
        added, removed = (src[created], dst[created]), (src[deleted], dst[deleted])
        return _net(added, removed, len(self)) if deleted.any() else (added, removed)

    def _index_edges(self, more: int) -> None:
        """Insert all edges into the index, with capacity for `more` edges."""
        count = self.edge_count
        self._older.reserve(count + more)
        if 2 * (count + more) > len(self._table):
            self._table = np.zeros(1 << (2 * (count + more)).bit_length(), np.int32)
            self._counts[INDEXED_COUNT] = 0
        index_edges(self._src.data, self._dst.data, self._older.data, self._table, self._counts)


@compiled
def _fill(seeds: Hashes, inputs: Floats) -> None:
    """Initial values of vertices; faster than `initial_values`, which allocates and loops in Python."""
    for i in range(len(seeds)):
        fill_initial(seeds[i], inputs[i])


def _interleave(src: Keys, dst: Keys) -> Keys:
    """Source and destination of each event, alternating: the order in which vertices are created."""
    n = len(src)
    if isinstance(src, IntKeys) and isinstance(dst, IntKeys) and src.valid is None and dst.valid is None:
        return IntKeys(np.column_stack([src.values, dst.values]).ravel())
    return concat_keys([src, dst]).take(np.arange(2 * n).reshape(2, n).T.ravel())


def _net(added: tuple[Ints, Ints], removed: tuple[Ints, Ints], n: int) -> Any:
    """Cancel edges that are in both lists."""
    code = np.concatenate([added[0] * n + added[1], removed[0] * n + removed[1]])
    sign = np.repeat([1, -1], [len(added[0]), len(removed[0])])
    pairs, inverse = np.unique(code, return_inverse=True)
    times = np.bincount(inverse, weights=sign, minlength=len(pairs)).astype(np.int64)
    both = np.repeat(pairs, np.maximum(times, 0)), np.repeat(pairs, np.maximum(-times, 0))
    return tuple((codes // n, codes % n) for codes in both)
