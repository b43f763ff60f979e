"""What a part of Vertex l knows of its masters, and the loops over them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from d3gnn.kernel.aggregators.base import MAX, MEAN
from d3gnn.kernel.arrays import Space, reserve_all
from d3gnn.kernel.compiled import compiled, inlined, lean
from d3gnn.kernel.hashing import fill_initial
from d3gnn.kernel.ids import KeyColumn
from d3gnn.kernel.prefetch import AHEAD, fetch, fetch_row
from d3gnn.kernel.touched import ARRIVAL, NEVER, TIME, VERTEX, clear, make_touched, touch
from d3gnn.kernel.windows.pending import Pending
from d3gnn.types import FLOAT32, INT32, INT64, Bytes, Doubles, Floats, Hashes, Ints, Ints32

# The space's counters: links in use, first free one plus 1; the same for partials; keys (3).
_LINKS, _FREE_LINK, _PARTIALS, _FREE_PARTIAL, _KEYS = 0, 1, 2, 3, 4


class Rows(NamedTuple):
    """By row of a master."""

    value: Floats  # x(l)
    root: Floats  # what the layer keeps of x(l-1)
    slot: Ints32  # where in its own part the vertex is
    unsent: Bytes  # 1 for a vertex that was never sent
    seed: Hashes  # of its initial value; at Vertex 0


# Columns of a link, by which a replica gets a master's value. Links and partials are lists for each row; 0
# ends a list, and what is named is one less.
LINK_PART, LINK_SLOT, NEXT_LINK = range(3)
#: The largest logit where there is none: any other is larger.
NO_LOGIT = -1e30
# Columns of a partial aggregate: the part that sent it, how many messages it joins.
PARTIAL_PART, MESSAGES, NEXT_PARTIAL = range(3)


#: Rows, values, and causes: event time and arrival.
Changed = tuple[Ints32, Floats, Ints, Ints]


_EMPTY = np.empty(0, INT32), np.empty(0, INT64)


def room_for(n: int, width: int) -> Changed:
    """Columns for so many rows."""
    if not n:
        return _EMPTY[0], np.empty((0, width), FLOAT32), _EMPTY[1], _EMPTY[1]
    return np.empty(n, INT32), np.empty((n, width), FLOAT32), np.empty(n, INT64), np.empty(n, INT64)


class VertexState:
    """The arrays of a part, and views of them."""

    def __init__(
        self,
        space: Space,
        width: int,
        root_width: int,
        state_width: int,
        pending: Pending | None = None,
        reports: bool = False,
    ) -> None:
        self.space, self.pending = space, pending
        self._reported = space.array("reported", np.int32) if reports else None
        self._rows = [
            space.array("value", np.float32, width),
            space.array("root", np.float32, root_width),
            space.array("slot", np.int32),
            space.array("unsent", np.uint8),
            space.array("seed", np.uint64),
        ]
        self._links = [space.array("first_link", np.int32), space.array("link", np.int32, 3)]
        self._partials = [
            space.array("first_partial", np.int32),
            space.array("partial", np.int32, 3),
            space.array("partial_state", np.float32, state_width),
        ]
        self.keys = KeyColumn(space, "key", space.counters[_KEYS : _KEYS + 3])
        self.touched = make_touched(0)
        self._generation = -1
        self.reserve_rows(1)
        self.reserve_links(1)
        self.reserve_partials(1)
        self.follow()

    def reserve_rows(self, rows: int) -> None:
        """Room for rows below this."""
        if rows > len(self._rows[2].data):
            reserve_all((*self._rows, self._links[0], self._partials[0]), rows)
            self.follow()

    def reserve_links(self, more: int) -> None:
        """Room for so many more links."""
        self._links[1].reserve(int(self.space.counters[_LINKS]) + more)
        self.follow()

    def reserve_partials(self, more: int) -> None:
        """Room for so many more partials."""
        needed = int(self.space.counters[_PARTIALS]) + more
        if needed > len(self._partials[1].data):
            reserve_all(self._partials[1:], needed)
            self.follow()

    def follow(self) -> None:
        """Take the views again, and be as large, if an array has moved; another process may have grown it."""
        if self._generation != self.space.generation:
            #: Views of what there is by row.
            self.rows = Rows(*(array.data for array in self._rows))
            #: The first link of each row, and the links.
            self.links: tuple[Ints32, Ints32] = self._links[0].data, self._links[1].data
            first, partials, states = self._partials
            #: The first partial of each row, the partials, and their states.
            self.partials: tuple[Ints32, Ints32, Floats] = first.data, partials.data, states.data
            # Whoever has made everything anew without a window, or without alerts, has emptied these.
            if self.pending is not None:
                self.pending.reserve(len(self.rows.slot))
            if self._reported is not None:
                self._reported.reserve(len(self.rows.slot))
            if len(self.touched) <= len(self.rows.slot):
                self.touched = make_touched(len(self.rows.slot))
            self._generation = self.space.generation

    @property
    def reported(self) -> Ints32:
        """The class plus 1 that was last said of each row; 0 for none."""
        assert self._reported is not None
        reported: Ints32 = self._reported.data
        return reported


@lean
def settle(which: Ints32, slots: Ints32, slot: Ints32, unsent: Bytes) -> None:
    """New masters take their rows."""
    for i in range(len(which)):
        slot[which[i]], unsent[which[i]] = slots[i], 1


@compiled
def start(
    which: Ints32, slots: Ints32, seeds: Hashes, time: Ints, arrival: Ints, width: int,
    slot: Ints32, unsent: Bytes, seed: Hashes, value: Floats, touched: Ints,
) -> None:  # fmt: skip
    """New masters take their rows, are touched, and get their initial value, in the first `width` numbers."""
    settle(which, slots, slot, unsent)
    for i in range(len(which)):
        touch(touched, which[i], time[i], arrival[i])
        seed[which[i]] = seeds[i]
        fill_initial(seeds[i], value[which[i], :width])


@compiled
def take_features(
    which: Ints32, feature: Ints32, given: Floats, width: int, ends: Ints, seed: Hashes, value: Floats
) -> None:
    """Write features into their place in x(0), or the initial value where one was deleted, in order."""
    initial = np.empty(width, np.float32)
    for i in range(len(which)):
        row = which[i]
        if feature[i] >= 0:
            begin, end = ends[feature[i], 0], ends[feature[i], 1]
            value[row, begin:end] = given[i, : end - begin]
        else:
            begin, end = ends[-1 - feature[i], 0], ends[-1 - feature[i], 1]
            fill_initial(seed[row], initial)
            value[row, begin:end] = initial[begin:end]


@lean
def link(which: Ints32, parts: Ints32, slots: Ints32, first: Ints32, links: Ints32, counters: Ints) -> None:
    """From now on the replica at (part, slot) gets this row's value."""
    for i in range(len(which)):
        at = counters[_FREE_LINK] - 1
        if at >= 0:
            counters[_FREE_LINK] = links[at, NEXT_LINK]
        else:
            at = counters[_LINKS]
            counters[_LINKS] += 1
        links[at, LINK_PART] = parts[i]
        links[at, LINK_SLOT] = slots[i]
        links[at, NEXT_LINK] = first[which[i]]
        first[which[i]] = at + 1


@lean
def drop(
    which: Ints32, first_link: Ints32, links: Ints32, first_partial: Ints32, partials: Ints32, counters: Ints
) -> None:
    """Deleted masters give back their links and partials."""
    for row in which:
        while first_link[row] > 0:
            at = first_link[row] - 1
            first_link[row] = links[at, NEXT_LINK]
            links[at, NEXT_LINK] = counters[_FREE_LINK]
            counters[_FREE_LINK] = at + 1
        while first_partial[row] > 0:
            at = first_partial[row] - 1
            first_partial[row] = partials[at, NEXT_PARTIAL]
            _free_partial(at, partials, counters)


@inlined
def _free_partial(at: int, partials: Ints32, counters: Ints) -> None:
    partials[at, PARTIAL_PART] = -1
    partials[at, NEXT_PARTIAL] = counters[_FREE_PARTIAL]
    counters[_FREE_PARTIAL] = at + 1


@inlined
def _forget_partial(row: int, source: int, first: Ints32, partials: Ints32, counters: Ints) -> None:
    before = -1
    at = first[row] - 1
    while at >= 0:
        if partials[at, PARTIAL_PART] == source:
            if before < 0:
                first[row] = partials[at, NEXT_PARTIAL]
            else:
                partials[before, NEXT_PARTIAL] = partials[at, NEXT_PARTIAL]
            _free_partial(at, partials, counters)
            return
        before = at
        at = partials[at, NEXT_PARTIAL] - 1


@lean
def take_partials(
    source: int, full: bool, which: Ints32, counts: Ints32, time: Ints, arrival: Ints, given: Floats,
    first: Ints32, partials: Ints32, states: Floats, counters: Ints, touched: Ints,
) -> None:  # fmt: skip
    """Partials replace the last ones of their sender; a count of 0 forgets one, FULL all of them first."""
    if full:
        for row in range(len(first)):
            if first[row] > 0:
                _forget_partial(row, source, first, partials, counters)
    last = len(which) - 1
    for i in range(len(which)):
        fetch(first, which[min(last, i + 2 * AHEAD)])
        next = which[min(last, i + AHEAD)]
        fetch(touched, next + 1)
        fetch(partials, first[next] - 1)
        fetch_row(states, first[next] - 1)
        row = which[i]
        if arrival[i] != NEVER:
            touch(touched, row, time[i], arrival[i])
        if counts[i] == 0:
            _forget_partial(row, source, first, partials, counters)
            continue
        at = first[row] - 1
        while at >= 0 and partials[at, PARTIAL_PART] != source:
            at = partials[at, NEXT_PARTIAL] - 1
        if at < 0:
            at = counters[_FREE_PARTIAL] - 1
            if at >= 0:
                counters[_FREE_PARTIAL] = partials[at, NEXT_PARTIAL]
            else:
                at = counters[_PARTIALS]
                counters[_PARTIALS] += 1
            partials[at, PARTIAL_PART] = source
            partials[at, NEXT_PARTIAL] = first[row]
            first[row] = at + 1
        partials[at, MESSAGES] = counts[i]
        for k in range(given.shape[1]):
            states[at, k] = given[i, k]


@lean
def join_partials(
    begin: int, touched: Ints, roots: Floats, first: Ints32, partials: Ints32, states: Floats, codes: Ints,
    root: Floats, aggregate: Floats, total: Doubles,
) -> None:  # fmt: skip
    """Root and aggregate of touched masters from number `begin` on; `total` is room for one state.

    `codes` say how what stands side by side in a state is joined.
    """
    root_width, width = roots.shape[1], states.shape[1] // len(codes)
    last = begin + len(root)
    for i in range(len(root)):
        fetch(first, touched[min(last, begin + i + 1 + 2 * AHEAD), VERTEX])
        next = touched[min(last, begin + i + 1 + AHEAD), VERTEX]
        fetch_row(roots, next)
        fetch(partials, first[next] - 1)
        fetch_row(states, first[next] - 1)
        row = touched[begin + i + 1, VERTEX]
        for k in range(root_width):
            root[i, k] = roots[row, k]
        for k in range(states.shape[1]):
            total[k] = 0.0
        count = 0
        at = first[row] - 1
        while at >= 0:
            for s in range(len(codes)):
                own = slice(s * width, (s + 1) * width)
                _join(codes[s], count == 0, states[at, own], total[own])
            count += partials[at, MESSAGES]
            at = partials[at, NEXT_PARTIAL] - 1
        for s in range(len(codes)):
            scale = 1.0 / count if codes[s] == MEAN and count > 0 else 1.0
            joint, into = total[s * width : (s + 1) * width], aggregate[i, s * width : (s + 1) * width]
            for k in range(width):
                into[k] = joint[k] * scale


@inlined
def _join(code: int, is_first: bool, state: Floats, total: Doubles) -> None:
    """Take one partial into what was joined of those before it."""
    if code <= MEAN:
        for k in range(len(total)):
            total[k] += state[k]
    else:
        for k in range(len(total)):
            better = state[k] > total[k] if code == MAX else state[k] < total[k]
            if is_first or better:
                total[k] = state[k]


@lean
def join_attention(
    begin: int, touched: Ints, roots: Floats, first: Ints32, partials: Ints32, states: Floats, heads: int,
    channels: int, root: Floats, aggregate: Floats, total: Doubles,
) -> None:  # fmt: skip
    """As `join_partials`, for the states of attention; those of edges become their mean."""
    edges = heads * (2 + channels)
    for i in range(len(root)):
        row = touched[begin + i + 1, VERTEX]
        for k in range(roots.shape[1]):
            root[i, k] = roots[row, k]
        for k in range(states.shape[1]):
            total[k] = NO_LOGIT if k < heads else 0.0
        count = 0
        at = first[row] - 1
        while at >= 0:
            for h in range(heads):
                _join_head(h, heads, channels, states, at, total)
            for k in range(edges, states.shape[1]):
                total[k] += states[at, k]
            count += partials[at, MESSAGES]
            at = partials[at, NEXT_PARTIAL] - 1
        for k in range(edges):
            aggregate[i, k] = total[k]
        for k in range(edges, states.shape[1]):
            aggregate[i, k] = total[k] / max(1, count)


@inlined
def _join_head(h: int, heads: int, channels: int, states: Floats, at: int, total: Doubles) -> None:
    begin = 2 * heads + h * channels
    before, more = 1.0, 1.0
    if states[at, h] > total[h]:
        before = 0.0 if total[h] == NO_LOGIT else np.exp(total[h] - states[at, h])
        total[h] = states[at, h]
    else:
        more = np.exp(states[at, h] - total[h])
    total[heads + h] = before * total[heads + h] + more * states[at, heads + h]
    joint, partial = total[begin : begin + channels], states[at, begin : begin + channels]
    for c in range(channels):
        joint[c] = before * joint[c] + more * partial[c]


@lean
def renew(
    begin: int, kept: int, fresh: Floats, epsilon: float, value: Floats, unsent: Bytes, touched: Ints,
    rows: Ints32, values: Floats, time: Ints, arrival: Ints,
) -> int:  # fmt: skip
    """Store new values of the touched rows from number `begin` on. Those that changed, or were never sent,
    go into the columns, behind the `kept` ones that are there.

    A value of which no number has changed by more than `epsilon` since it was sent stays as it was sent.
    How many are then there. After the last rows the set is empty.
    """
    width = value.shape[1]
    last = begin + len(fresh)
    for i in range(begin, last):
        fetch_row(value, touched[min(last, i + 1 + AHEAD), VERTEX])
        row = touched[i + 1, VERTEX]
        changed = unsent[row] == 1
        if epsilon > 0:
            for k in range(width):
                changed |= not abs(fresh[i - begin, k] - value[row, k]) <= epsilon
        if epsilon == 0 or changed:
            for k in range(width):
                changed |= fresh[i - begin, k] != value[row, k]
                value[row, k] = fresh[i - begin, k]
                values[kept, k] = fresh[i - begin, k]
        if changed:
            rows[kept], time[kept], arrival[kept] = row, touched[i + 1, TIME], touched[i + 1, ARRIVAL]
            unsent[row] = 0
            kept += 1
    if last == touched[0, VERTEX]:
        clear(touched)
    return kept


@lean
def renew_few(
    touched: Ints, roots: Floats, first: Ints32, partials: Ints32, states: Floats, codes: Ints,
    root: Floats, aggregate: Floats, total: Doubles,
    left: Floats, right: Floats, bias: Floats, relu: bool, fresh: Floats, epsilon: float,
    value: Floats, unsent: Bytes, rows: Ints32, values: Floats, time: Ints, arrival: Ints,
) -> int:  # fmt: skip
    """All that becomes of a few touched masters, in one call: `join_partials`, an affine update, `renew`."""
    join_partials(0, touched, roots, first, partials, states, codes, root, aggregate, total)
    for i in range(len(fresh)):
        for j in range(fresh.shape[1]):
            fresh[i, j] = bias[j]
        _add_product(aggregate[i], left, fresh[i])
        _add_product(root[i], right, fresh[i])
        for j in range(fresh.shape[1]):
            if relu and fresh[i, j] < 0:
                fresh[i, j] = 0
    return renew(0, 0, fresh, epsilon, value, unsent, touched, rows, values, time, arrival)


@inlined
def _add_product(row: Floats, weight: Floats, into: Floats) -> None:
    """Add a row times a matrix; many rows are zero in many places, or everywhere, before a partial comes."""
    fours = len(row) // 4 * 4
    for k in range(0, fours, 4):
        a, b, c, d = row[k], row[k + 1], row[k + 2], row[k + 3]
        if a != 0.0 or b != 0.0 or c != 0.0 or d != 0.0:
            one, two, three, four = weight[k], weight[k + 1], weight[k + 2], weight[k + 3]
            for j in range(len(into)):
                into[j] += (a * one[j] + b * two[j]) + (c * three[j] + d * four[j])
    for k in range(fours, len(row)):
        for j in range(len(into)):
            into[j] += row[k] * weight[k, j]


@lean
def take_degrees(
    touched: Ints, first: Ints32, partials: Ints32, states: Floats, codes: Ints, begin: int, value: Floats
) -> None:
    """Write the degrees of touched masters, joined of all parts, into their rows from column `begin` on."""
    for i in range(touched[0, VERTEX]):
        row = touched[i + 1, VERTEX]
        for s in range(len(codes)):
            total, is_first, at = 0.0, True, first[row] - 1
            while at >= 0:
                if codes[s] == MAX:
                    total = states[at, s] if is_first else max(total, states[at, s])
                else:
                    total += states[at, s]
                is_first, at = False, partials[at, NEXT_PARTIAL] - 1
            value[row, begin + s] = total


@lean
def hand_over(
    touched: Ints, value: Floats, unsent: Bytes, rows: Ints32, values: Floats, time: Ints, arrival: Ints
) -> None:
    """Fill the columns with the touched rows, their values and causes. Empties the set."""
    width = value.shape[1]
    for i in range(touched[0, VERTEX]):
        row = touched[i + 1, VERTEX]
        rows[i], time[i], arrival[i] = row, touched[i + 1, TIME], touched[i + 1, ARRIVAL]
        unsent[row] = 0
        for k in range(width):
            values[i, k] = value[row, k]
    clear(touched)
