"""The state of a part of Vertex l: its masters."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from d3gnn.kernel.arrays import reserve_all
from d3gnn.kernel.operators.master_lists import COUNTERS, LINKS, PARTIALS
from d3gnn.kernel.part_state import PartState
from d3gnn.kernel.touched import make_touched
from d3gnn.kernel.windows.pending import Pending
from d3gnn.types import FLOAT32, INT32, INT64, Bytes, Doubles, Floats, Hashes, Ints, Ints32


class Rows(NamedTuple):
    """Views of what is kept by row of a master."""

    value: Floats  # x(l)
    root: Floats  # what the layer keeps of x(l-1)
    slot: Ints32  # the vertex's replica slot in its own part
    unsent: Bytes  # 1 for a vertex that was never sent
    seed: Hashes  # of its initial value; at Vertex 0


#: Masters whose value changed: row, value, and event time and arrival of the cause. A plain tuple, as three
#: are made in every batch, and a named one takes longer than the rest of a small step.
Changes = tuple[Ints32, Floats, Ints, Ints]


def allocate_changes(n: int, width: int) -> Changes:
    """Columns of n rows to fill."""
    if not n:
        return _EMPTY32, np.empty((0, width), FLOAT32), _EMPTY64, _EMPTY64
    return np.empty(n, INT32), np.empty((n, width), FLOAT32), np.empty(n, INT64), np.empty(n, INT64)


_EMPTY32, _EMPTY64 = np.empty(0, INT32), np.empty(0, INT64)


_NO_SUMS = np.zeros((0, 0))


class VertexState:
    """The arrays of a part, and views of them."""

    def __init__(
        self,
        part_state: PartState,
        width: int,
        root_width: int,
        state_width: int,
        pending: Pending | None = None,
        roots: PartState | None = None,
        partials: PartState | None = None,
    ) -> None:
        self.part_state, self.pending = part_state, pending
        self._near = [state for state in (roots, partials) if state is not None]
        self._rows = [
            part_state.array("value", np.float32, width),
            part_state.array("root", np.float32, 0 if roots else root_width),
            part_state.array("slot", np.int32),
            part_state.array("unsent", np.uint8),
            part_state.array("seed", np.uint64),
        ]
        #: x(l-1) where another state has it, else what was received.
        self._root = roots.array("value", np.float32, root_width) if roots else self._rows[1]
        self._links = [part_state.array("first_link", np.int32), part_state.array("link", np.int32, 3)]
        self._partials = [
            part_state.array("first_partial", np.int32),
            part_state.array("partial", np.int32, 3),
            part_state.array("partial_state", np.float32, 0 if partials else state_width),
        ]
        self._sums = partials.array("sums", np.float64, state_width) if partials else None
        #: Of the lists of links and partials.
        self.counters = part_state.counters("lists", COUNTERS)
        self.touched = make_touched(0)
        #: Increases when an array moves, also one of another state that is read here.
        self.generation = -1
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
        """Room for `more` links."""
        self._links[1].reserve(int(self.counters[LINKS]) + more)
        self.follow()

    def reserve_partials(self, more: int) -> None:
        """Room for `more` partials."""
        needed = int(self.counters[PARTIALS]) + more
        if needed > len(self._partials[1].data):
            reserve_all(self._partials[1:], needed)
            self.follow()

    def follow(self) -> None:
        """Take the views again, and be as large, if an array has moved; another process may have grown it."""
        generation = self.part_state.generation
        for near in self._near:
            generation += near.generation  # all only increase
        if self.generation != generation:
            #: Views of what there is by row.
            self.rows = Rows(*(array.data for array in self._rows))._replace(root=self._root.data)
            #: The first link of each row, and the links.
            self.links: tuple[Ints32, Ints32] = self._links[0].data, self._links[1].data
            first, partials, states = self._partials
            #: The first partial of each row, the partials, and their states.
            self.partials: tuple[Ints32, Ints32, Floats] = first.data, partials.data, states.data
            #: By slot: the states that stand for partials without columns.
            self.sums: Doubles = _NO_SUMS if self._sums is None else self._sums.data
            # A process that rebuilt the state without a window has emptied it.
            if self.pending is not None:
                self.pending.reserve(len(self.rows.slot))
            if len(self.touched) <= len(self.rows.slot):
                self.touched = make_touched(len(self.rows.slot))
            self.generation = generation
