"""The graph as plain arrays, for whoever recomputes over it after every batch."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from d3gnn.events import Element, EventBatch, GraphSchema, Keys, Op, check, feature_index, order
from d3gnn.events.keys import IntKeys, concat_keys
from d3gnn.kernel.arrays import Space
from d3gnn.kernel.compiled import compiled, lean
from d3gnn.kernel.hashing import fill_initial, hash_keys, initial_values, mix
from d3gnn.kernel.ids import IdTable
from d3gnn.types import Bools, Floats, Hashes, Ints, Ints32, Small

_NEVER = int(np.iinfo(np.int64).min)
#: Places in the counts: edges, and how many of them are in the table.
_EDGES, _INDEXED = 0, 1


@dataclass(frozen=True)
class Change:
    """What a batch has changed, in rows; an edge that came and went within it is in neither list."""

    added_src: Ints
    added_dst: Ints
    removed_src: Ints
    removed_dst: Ints
    #: Rows whose input is new or another, in ascending order.
    inputs: Ints
    #: Vertices before the batch: rows from here on are new.
    vertices_before: int

    @property
    def sources(self) -> Ints:
        """The sources of edges that came or went."""
        return np.concatenate([self.added_src, self.removed_src])

    @property
    def targets(self) -> Ints:
        """The destinations of edges that came or went: their in-neighbourhoods are others now."""
        return np.concatenate([self.added_dst, self.removed_dst])


class _Rows(NamedTuple):
    """The good events of a batch in the order in which they apply; -1 for a vertex that is not there then."""

    position: Ints
    op: Small
    element: Small
    src: Ints
    dst: Ints


class LiveGraph:
    """The graph that the batches so far have made; vertices are rows, in the order in which they came.

    It takes the same events as the oracle, in the same order, and skips the same ones, as arrays instead of
    one by one. It has no vertex deletes, keyed edges or edge features.

    >>> graph = LiveGraph(GraphSchema(features={"x": 2}))
    >>> change = graph.apply(EventBatch.edges([30, 30, 10], [10, 10, 20]))
    >>> graph.keys().to_list(), graph.src.tolist(), graph.dst.tolist(), change.inputs.tolist()
    ([30, 10, 20], [0, 1], [1, 2], [0, 1, 2])
    """

    def __init__(self, schema: GraphSchema) -> None:
        if schema.edges == "keyed" or schema.edge_features:
            raise ValueError("peers take no keyed edges and no edge features: give a schema without them")
        self.schema = schema
        space = Space()
        self._id_type: type[Keys] | None = None
        self._ids = IdTable(space, "id")
        self._inputs = space.array("inputs", np.float32, schema.width)
        self._times = space.array("times", np.int64, len(schema.features))
        self._src, self._dst = space.array("src", np.int64), space.array("dst", np.int64)
        self._counts = np.zeros(2, np.int64)
        #: For each edge the next older copy of it plus 1; and a hash table of the newest copies plus 1.
        self._older = space.array("older", np.int32)
        self._table: Ints32 = np.zeros(0, np.int32)

    def __len__(self) -> int:
        """How many vertices there are."""
        return len(self._ids)

    @property
    def edge_count(self) -> int:
        """How many edges carry messages; an undirected one counts twice."""
        return int(self._counts[_EDGES])

    @property
    def src(self) -> Ints:
        """The source of every edge: a view, until the next batch."""
        return self._src.data[: self.edge_count]  # type: ignore[no-any-return]

    @property
    def dst(self) -> Ints:
        """The destination of every edge: a view, until the next batch."""
        return self._dst.data[: self.edge_count]  # type: ignore[no-any-return]

    @property
    def inputs(self) -> Floats:
        """The model's input [n, width]: a view, until the next batch."""
        return self._inputs.data[: len(self)]  # type: ignore[no-any-return]

    def keys(self) -> Keys:
        """The id of every row."""
        return self._ids.keys.take(np.arange(len(self)))

    def apply(self, batch: EventBatch) -> Change:
        """Take in one batch; what it has changed."""
        before = len(self)
        rows = self._resolve(batch)
        gone = (rows.element == Element.VERTEX) & (rows.op == Op.DELETE) & (rows.src >= 0)
        if gone.any():
            raise ValueError(
                f"{batch.row(int(rows.position[gone][0]))}: peers take no vertex deletes; "
                "compare on a stream without them"
            )
        self._start_new_vertices(before)
        changed = self._set_features(batch, rows, before)
        added, removed = self._change_edges(rows)
        return Change(*added, *removed, np.concatenate([changed, np.arange(before, len(self))]), before)

    def _resolve(self, batch: EventBatch) -> _Rows:
        """Who is meant by each good event: ids become rows, new ones where the event makes vertices."""
        good = (check(batch, self.schema) == 0) & (batch.element != Element.QUERY)
        is_edge = batch.element == Element.EDGE
        if good.any():
            self._id_type = self._id_type or type(batch.src)
        if type(batch.src) is not self._id_type:
            good[:] = False
        elif type(batch.dst) is not self._id_type:
            good &= ~is_edge
        # Labels are nothing to a forward pass, and make no vertices.
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
        makes = op == Op.CREATE
        if dst is None or not is_edge.any():
            found = self._ids.intern(src, makes).astype(np.int64)
            return _Rows(position, op, element, found, np.full(len(found), -1))
        both = self._ids.intern(_interleave(src, dst), np.column_stack([makes, makes & is_edge]).ravel())
        ends = both.astype(np.int64).reshape(-1, 2)
        return _Rows(position, op, element, ends[:, 0], ends[:, 1])

    def _start_new_vertices(self, before: int) -> None:
        n = len(self)
        if n > before:
            self._inputs.reserve(n)
            self._times.reserve(n)
            ids = self._ids.keys.take(np.arange(before, n))
            _fill(hash_keys(ids), self._inputs.data[before:n])
            self._times.data[before:n] = _NEVER

    def _set_features(self, batch: EventBatch, rows: _Rows, before: int) -> Ints:
        """Set features; the rows below `before` whose input is another now. Last writer wins by time."""
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
            mine = np.flatnonzero(which == f)
            # The events are in the order of their times: of those about one row, only the last can stay.
            _, last = np.unique(row[mine][::-1], return_index=True)
            mine = mine[len(mine) - 1 - last]
            mine = mine[batch.time[position[mine]] >= self._times.data[row[mine], f]]
            self._times.data[row[mine], f] = batch.time[position[mine]]
            column = self._inputs.data[:, begin : begin + width]
            is_set = op[mine] != Op.DELETE
            cleared, mine = row[mine[~is_set]], mine[is_set]
            if len(cleared):
                initial = initial_values(self._ids.keys.take(cleared), self.schema.width)
                column[cleared] = initial[:, begin : begin + width]
            if len(mine):
                assert batch.values is not None
                assert batch.value_offsets is not None
                first = batch.value_offsets[position[mine]]
                column[row[mine]] = batch.values[first[:, None] + np.arange(width)]
        changed: Ints = touched[(self.inputs[touched] != old).any(axis=1) & (touched < before)]
        return changed

    def _change_edges(self, rows: _Rows) -> tuple[tuple[Ints, Ints], tuple[Ints, Ints]]:
        """Create and delete edges; which ones came and which went."""
        meant = (rows.element == Element.EDGE) & (rows.dst >= 0) & (rows.src >= 0)
        src, dst, removes = rows.src, rows.dst, rows.op == Op.DELETE
        if not meant.all():
            src, dst, removes = src[meant], dst[meant], removes[meant]
        if not self.schema.directed:
            back = np.column_stack([np.ones(len(src), np.bool_), src != dst]).ravel()
            src, dst = np.column_stack([src, dst]).ravel()[back], np.column_stack([dst, src]).ravel()[back]
            removes = np.repeat(removes, 2)[back]
        count, more = self.edge_count, len(src)
        if count + more >= np.iinfo(np.int32).max:
            raise ValueError(f"{count + more} edges: at most 2 to the power of 31, please")
        self._src.reserve(count + more)
        self._dst.reserve(count + more)
        # Parallel copies need no table before one is deleted.
        if self.schema.edges != "simple" and not removes.any():
            self._src.data[count : count + more] = src
            self._dst.data[count : count + more] = dst
            self._counts[_EDGES] += more
            return (src, dst), (src[:0], dst[:0])
        self._index_edges(more)
        done = np.empty(more, np.bool_)
        _apply_edges(
            src, dst, removes, self.schema.edges == "simple", self._src.data, self._dst.data,
            self._older.data, self._table, self._counts, done,
        )  # fmt: skip
        came, went = done & ~removes, done & removes
        added, removed = (src[came], dst[came]), (src[went], dst[went])
        return _net(added, removed, len(self)) if went.any() else (added, removed)

    def _index_edges(self, more: int) -> None:
        """Bring the table up to date with the edges, with room for so many more."""
        count = self.edge_count
        self._older.reserve(count + more)
        if 2 * (count + more) > len(self._table):
            self._table = np.zeros(1 << (2 * (count + more)).bit_length(), np.int32)
            self._counts[_INDEXED] = 0
        _index(self._src.data, self._dst.data, self._older.data, self._table, self._counts)


@compiled
def _fill(seeds: Hashes, inputs: Floats) -> None:
    """Initial values; `initial_values` goes through new arrays, and through Python once per vertex."""
    for i in range(len(seeds)):
        fill_initial(seeds[i], inputs[i])


def _interleave(src: Keys, dst: Keys) -> Keys:
    """Source and destination of each event in turn: vertices are made in this order."""
    n = len(src)
    if isinstance(src, IntKeys) and isinstance(dst, IntKeys) and src.valid is None and dst.valid is None:
        return IntKeys(np.column_stack([src.values, dst.values]).ravel())
    return concat_keys([src, dst]).take(np.arange(2 * n).reshape(2, n).T.ravel())


def _net(added: tuple[Ints, Ints], removed: tuple[Ints, Ints], n: int) -> Any:
    """Without the edges that are in both."""
    code = np.concatenate([added[0] * n + added[1], removed[0] * n + removed[1]])
    sign = np.repeat([1, -1], [len(added[0]), len(removed[0])])
    pairs, inverse = np.unique(code, return_inverse=True)
    times = np.bincount(inverse, weights=sign, minlength=len(pairs)).astype(np.int64)
    both = np.repeat(pairs, np.maximum(times, 0)), np.repeat(pairs, np.maximum(-times, 0))
    return tuple((codes // n, codes % n) for codes in both)


@lean
def _place(u: int, v: int, src: Ints, dst: Ints, table: Ints32) -> np.uint64:
    """Where in the table the newest copy of (u, v) is, or would be."""
    mask = np.uint64(len(table) - 1)
    at = mix((np.uint64(u) << np.uint64(32)) | np.uint64(v)) & mask
    while table[at] != 0 and (src[table[at] - 1] != u or dst[table[at] - 1] != v):
        at = (at + np.uint64(1)) & mask
    return at


@lean
def _vacate(at: np.uint64, src: Ints, dst: Ints, table: Ints32) -> None:
    """Empty a place and move up what had to step over it."""
    mask = np.uint64(len(table) - 1)
    gap = at
    while True:
        at = (at + np.uint64(1)) & mask
        edge = table[at] - 1
        if edge < 0:
            break
        home = mix((np.uint64(src[edge]) << np.uint64(32)) | np.uint64(dst[edge])) & mask
        if ((at - home) & mask) >= ((at - gap) & mask):
            table[gap] = edge + 1
            gap = at
    table[gap] = 0


@lean
def _link(edge: int, src: Ints, dst: Ints, older: Ints32, table: Ints32) -> None:
    at = _place(src[edge], dst[edge], src, dst, table)
    older[edge] = table[at]
    table[at] = edge + 1


@compiled
def _index(src: Ints, dst: Ints, older: Ints32, table: Ints32, counts: Ints) -> None:
    """Put the edges into the table that are not in it yet."""
    for edge in range(counts[_INDEXED], counts[_EDGES]):
        _link(edge, src, dst, older, table)
    counts[_INDEXED] = counts[_EDGES]


@lean
def _move(last: int, into: int, src: Ints, dst: Ints, older: Ints32, table: Ints32) -> None:
    """Give an edge another place in the arrays."""
    at = _place(src[last], dst[last], src, dst, table)
    if table[at] == last + 1:
        table[at] = into + 1
    else:
        copy = table[at] - 1
        while older[copy] != last + 1:
            copy = older[copy] - 1
        older[copy] = into + 1
    src[into], dst[into], older[into] = src[last], dst[last], older[last]


@compiled
def _apply_edges(
    from_: Ints, to: Ints, removes: Bools, simple: bool, src: Ints, dst: Ints, older: Ints32, table: Ints32,
    counts: Ints, done: Bools,
) -> None:  # fmt: skip
    """Create and delete edges one after another; the last edge fills the place of one that goes."""
    for i in range(len(from_)):
        at = _place(from_[i], to[i], src, dst, table)
        found = int(table[at]) - 1
        done[i] = found >= 0 if removes[i] else found < 0 or not simple
        if not done[i]:
            continue
        if not removes[i]:
            edge = counts[_EDGES]
            src[edge], dst[edge] = from_[i], to[i]
            _link(edge, src, dst, older, table)
            counts[_EDGES] += 1
            continue
        if older[found] > 0:
            table[at] = older[found]
        else:
            _vacate(at, src, dst, table)
        counts[_EDGES] -= 1
        if found != counts[_EDGES]:
            _move(counts[_EDGES], found, src, dst, older, table)
    counts[_INDEXED] = counts[_EDGES]
