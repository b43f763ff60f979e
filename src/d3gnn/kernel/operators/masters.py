"""What a part of Vertex l knows of its masters, and the loops over them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from d3gnn.kernel.arrays import Space
from d3gnn.kernel.compiled import compiled, lean
from d3gnn.kernel.hashing import fill_initial
from d3gnn.kernel.ids import KeyColumn
from d3gnn.kernel.touched import NEVER, Touched, make_touched, touch
from d3gnn.types import Bytes, Floats, Hashes, Ints, Ints32

# The space's counters: links in use, first free one plus 1; the same for partials; keys (3).
_LINKS, _FREE_LINK, _PARTIALS, _FREE_PARTIAL, _KEYS = 0, 1, 2, 3, 4


class Rows(NamedTuple):
    """By row of a master."""

    value: Floats  # x(l)
    root: Floats  # what the layer keeps of x(l-1)
    slot: Ints32  # where in its own part the vertex is
    unsent: Bytes  # 1 for a vertex that was never sent
    seed: Hashes  # of its initial value; at Vertex 0


class Links(NamedTuple):
    """The replicas that get a master's value: a list for each row."""

    first: Ints32  # by row: its first link, plus 1
    part: Ints32
    slot: Ints32
    next: Ints32


class Partials(NamedTuple):
    """The partial aggregates of a master, one for each part that has sent one: a list for each row."""

    first: Ints32  # by row: its first partial, plus 1
    part: Ints32
    messages: Ints32  # how many it joins
    next: Ints32
    state: Floats


class VertexState:
    """The arrays of a part, and views of them."""

    def __init__(self, space: Space, width: int, root_width: int, state_width: int) -> None:
        self.space = space
        self._rows = [
            space.array("value", np.float32, width),
            space.array("root", np.float32, root_width),
            space.array("slot", np.int32),
            space.array("unsent", np.uint8),
            space.array("seed", np.uint64),
        ]
        self._links = [space.array(f"link_{name}", np.int32) for name in Links._fields]
        self._partials = [
            *(space.array(f"partial_{name}", np.int32) for name in Partials._fields[:4]),
            space.array("partial_state", np.float32, state_width),
        ]
        self.keys = KeyColumn(space, "key", space.counters[_KEYS : _KEYS + 3])
        self.touched = make_touched(0)
        self._generation = -1
        self.reserve_rows(1)
        self.reserve_links(1)
        self.reserve_partials(1)

    def reserve_rows(self, rows: int) -> None:
        """Room for rows below this."""
        if rows > len(self._rows[2].data):
            for array in (*self._rows, self._links[0], self._partials[0]):
                array.reserve(rows)

    def reserve_links(self, more: int) -> None:
        """Room for so many more links."""
        for array in self._links[1:]:
            array.reserve(int(self.space.counters[_LINKS]) + more)

    def reserve_partials(self, more: int) -> None:
        """Room for so many more partials."""
        needed = int(self.space.counters[_PARTIALS]) + more
        if needed > len(self._partials[1].data):
            for array in self._partials[1:]:
                array.reserve(needed)

    @property
    def rows(self) -> Rows:
        self._follow()
        return self._views[0]

    @property
    def links(self) -> Links:
        self._follow()
        return self._views[1]

    @property
    def partials(self) -> Partials:
        self._follow()
        return self._views[2]

    def _follow(self) -> None:
        """Take the views again if an array has moved."""
        if self._generation != self.space.generation:
            self._views = (
                Rows(*(array.data for array in self._rows)),
                Links(*(array.data for array in self._links)),
                Partials(*(array.data for array in self._partials)),
            )
            if len(self.touched.mark) < len(self._views[0].slot):
                self.touched = make_touched(len(self._views[0].slot))
            self._generation = self.space.generation


@compiled
def start(which: Ints32, rows: Rows) -> None:
    """Give new masters their initial value."""
    for row in which:
        fill_initial(rows.seed[row], rows.value[row])


@compiled
def take_features(which: Ints32, feature: Ints32, values: Floats, ends: Ints, rows: Rows) -> None:
    """Write features into their place in x(0), or the initial value where one was deleted, in order."""
    initial = np.empty(rows.value.shape[1], np.float32)
    for i in range(len(which)):
        row = which[i]
        if feature[i] >= 0:
            begin, end = ends[feature[i], 0], ends[feature[i], 1]
            rows.value[row, begin:end] = values[i, : end - begin]
        else:
            begin, end = ends[-1 - feature[i], 0], ends[-1 - feature[i], 1]
            fill_initial(rows.seed[row], initial)
            rows.value[row, begin:end] = initial[begin:end]


@lean
def link(which: Ints32, parts: Ints32, slots: Ints32, links: Links, counters: Ints) -> None:
    """From now on the replica at (part, slot) gets this row's value."""
    for i in range(len(which)):
        at = counters[_FREE_LINK] - 1
        if at >= 0:
            counters[_FREE_LINK] = links.next[at]
        else:
            at = counters[_LINKS]
            counters[_LINKS] += 1
        links.part[at] = parts[i]
        links.slot[at] = slots[i]
        links.next[at] = links.first[which[i]]
        links.first[which[i]] = at + 1


@compiled
def drop(which: Ints32, rows: Rows, links: Links, partials: Partials, counters: Ints) -> None:
    """A deleted master gives back its links and partials."""
    for row in which:
        while links.first[row] > 0:
            at = links.first[row] - 1
            links.first[row] = links.next[at]
            links.next[at] = counters[_FREE_LINK]
            counters[_FREE_LINK] = at + 1
        while partials.first[row] > 0:
            at = partials.first[row] - 1
            partials.first[row] = partials.next[at]
            _free_partial(at, partials, counters)
        rows.value[row] = 0
        rows.root[row] = 0
        rows.unsent[row] = 0


@lean
def _free_partial(at: int, partials: Partials, counters: Ints) -> None:
    partials.part[at] = -1
    partials.next[at] = counters[_FREE_PARTIAL]
    counters[_FREE_PARTIAL] = at + 1


@lean
def _forget_partial(row: int, source: int, partials: Partials, counters: Ints) -> None:
    before = -1
    at = partials.first[row] - 1
    while at >= 0:
        if partials.part[at] == source:
            if before < 0:
                partials.first[row] = partials.next[at]
            else:
                partials.next[before] = partials.next[at]
            _free_partial(at, partials, counters)
            return
        before = at
        at = partials.next[at] - 1


@lean
def take_partials(
    source: int, full: bool, which: Ints32, counts: Ints32, time: Ints, arrival: Ints, state: Floats,
    partials: Partials, counters: Ints, touched: Touched,
) -> None:  # fmt: skip
    """Partials replace the last ones of their sender; a count of 0 forgets one, FULL all of them first."""
    width = state.shape[1]
    if full:
        for row in range(len(partials.first)):
            if partials.first[row] > 0:
                _forget_partial(row, source, partials, counters)
    for i in range(len(which)):
        row = which[i]
        if arrival[i] != NEVER:
            touch(touched, row, time[i], arrival[i])
        if counts[i] == 0:
            _forget_partial(row, source, partials, counters)
            continue
        at = partials.first[row] - 1
        while at >= 0 and partials.part[at] != source:
            at = partials.next[at] - 1
        if at < 0:
            at = counters[_FREE_PARTIAL] - 1
            if at >= 0:
                counters[_FREE_PARTIAL] = partials.next[at]
            else:
                at = counters[_PARTIALS]
                counters[_PARTIALS] += 1
            partials.part[at] = source
            partials.next[at] = partials.first[row]
            partials.first[row] = at + 1
        partials.messages[at] = counts[i]
        for k in range(width):
            partials.state[at, k] = state[i, k]


@compiled
def join_partials(
    touched: Touched, roots: Floats, partials: Partials, divides: bool
) -> tuple[Floats, Floats]:
    """Root and aggregate of every touched master."""
    n = touched.size[0]
    root_width, width = roots.shape[1], partials.state.shape[1]
    root, aggregate = np.empty((n, root_width), np.float32), np.empty((n, width), np.float32)
    total = np.empty(width, np.float64)
    for i in range(n):
        row = touched.vertices[i]
        for k in range(root_width):
            root[i, k] = roots[row, k]
        total[:] = 0.0
        count = 0
        at = partials.first[row] - 1
        while at >= 0:
            for k in range(width):
                total[k] += partials.state[at, k]
            count += partials.messages[at]
            at = partials.next[at] - 1
        scale = 1.0 / count if divides and count > 0 else 1.0
        for k in range(width):
            aggregate[i, k] = total[k] * scale
    return root, aggregate


@lean
def keep_changed(fresh: Floats, value: Floats, unsent: Bytes, touched: Touched) -> None:
    """Store new values; take rows whose value did not change off the list, unless they were never sent."""
    width = fresh.shape[1]
    kept = 0
    for i in range(touched.size[0]):
        row = touched.vertices[i]
        changed = unsent[row] == 1
        for k in range(width):
            changed |= fresh[i, k] != value[row, k]
            value[row, k] = fresh[i, k]
        touched.mark[row] = 0
        if changed:
            touched.vertices[kept] = row
            touched.time[kept] = touched.time[i]
            touched.arrival[kept] = touched.arrival[i]
            touched.mark[row] = kept + 1
            kept += 1
    touched.size[0] = kept


@compiled
def hand_over(
    touched: Touched, value: Floats, unsent: Bytes, changed: int
) -> tuple[Ints32, Floats, Ints, Ints]:
    """The touched rows with values and causes, of which the first `changed` are new; empties the set."""
    n, width = touched.size[0], value.shape[1]
    values = np.empty((n, width), np.float32)
    for i in range(n):
        row = touched.vertices[i]
        touched.mark[row] = 0
        if i < changed:
            unsent[row] = 0
        for k in range(width):
            values[i, k] = value[row, k]
    touched.size[0] = 0
    return touched.vertices[:n].copy(), values, touched.time[:n].copy(), touched.arrival[:n].copy()


@compiled
def address(
    part: int, parts: int, source_rows: Ints32, source_parts: Ints32, source_slots: Ints32,
    touched: Touched, slots: Ints32, links: Links,
) -> tuple[Ints32, Ints32, Ints]:  # fmt: skip
    """Who gets which row: places in the list and target slots, by target part.

    Rows of new sources that did not change join the list at its end.
    """
    changed = touched.size[0]
    ends = np.zeros(parts + 1, np.int64)
    for i in range(changed):
        ends[part + 1] += 1
        at = links.first[touched.vertices[i]] - 1
        while at >= 0:
            ends[links.part[at] + 1] += 1
            at = links.next[at] - 1
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
        pick[fill[part]], slot[fill[part]] = i, slots[row]
        fill[part] += 1
        at = links.first[row] - 1
        while at >= 0:
            p = links.part[at]
            pick[fill[p]], slot[fill[p]] = i, links.slot[at]
            fill[p] += 1
            at = links.next[at] - 1
    for i in range(len(source_rows)):
        mark = touched.mark[source_rows[i]]
        if mark > changed:
            p = source_parts[i]
            pick[fill[p]], slot[fill[p]] = mark - 1, source_slots[i]
            fill[p] += 1
    return pick, slot, ends[1:]
