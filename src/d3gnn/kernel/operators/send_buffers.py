"""Send buffers: rows from masters to replicas, or to the output, of all parts in a process.

The work per block takes longer than the work for the few rows that a small batch has per pair of parts. So
all rows that a process sends to a part are one block, and so are all rows that it emits.
"""

from __future__ import annotations

import numpy as np

from d3gnn.kernel.blocks import FEW_PARTS, OUTPUT, VALUES, Block
from d3gnn.kernel.compiled import lean
from d3gnn.kernel.operators.master_lists import LINK_PART, LINK_SLOT, NEXT_LINK
from d3gnn.kernel.touched import NEVER
from d3gnn.types import FLOAT32, INT32, INT64, Array, Floats, Ints, Ints32

#: More rows than this are not copied into a buffer.
FEW = 256
#: A buffer has room for twice what the last one held, within these bounds.
_FIRST_ROWS, _MOST_ROWS = 64, 4096


class SendBuffers:
    """Slots, causes and messages for the replicas in each part: one buffer per receiving part."""

    def __init__(self, parts: int, width: int) -> None:
        self._parts, self._width = parts, width
        self._ends = np.zeros(parts, INT64)
        self._wanted = np.zeros(parts, INT64)
        self._columns: tuple[Array, ...] = ()
        self._allocate(_FIRST_ROWS)

    def write(
        self,
        part: int,
        changed: tuple[Ints32, Ints, Ints, Floats],
        new: tuple[Ints32, Ints32, Ints32, Floats],
        slots: Ints32,
        links: tuple[Ints32, Ints32],
    ) -> None:
        """Write the messages of a part's changed rows for their own part and along their links.

        `new` are new sources by part and slot, with the rows of their messages in another matrix; they get
        these whether changed or not. They have no cause: no edge of theirs has a message to replace.
        """
        given = (part, *changed, *new, slots, *links, self._ends, self._wanted)
        wanted = _write(*given, *self._columns)
        if wanted:
            self._allocate(2 * wanted, int(self._ends.max()))
            _write(*given, *self._columns)

    def take(self, source: int) -> list[Block]:
        """One block per receiving part; the buffers are empty then."""
        blocks, most = [], 0
        slot, time, arrival, message = self._columns
        ends = self._ends
        targets = range(len(ends)) if len(ends) <= FEW_PARTS else np.flatnonzero(ends).tolist()
        for target in targets:
            end = ends.item(target)
            if end:
                columns = slot[target, :end], time[target, :end], arrival[target, :end], message[target, :end]
                blocks.append(Block(VALUES, source, target, columns))
                most = max(most, end)
        if blocks:
            ends[:] = 0
            self._allocate(_rows_after(most))
        return blocks

    def _allocate(self, rows: int, before: int = 0) -> None:
        """Allocate buffers of this many rows, and copy the first `before` rows of the old ones."""
        shape, written = (self._parts, rows), self._columns
        self._columns = (
            np.empty(shape, INT32), np.empty(shape, INT64), np.empty(shape, INT64),
            np.empty((*shape, self._width), FLOAT32),
        )  # fmt: skip
        if before:
            for new, old in zip(self._columns, written, strict=True):
                new[:, :before] = old[:, :before]


class OutputBuffer:
    """Output rows of a few vertices from each part, with integer ids."""

    def __init__(self, width: int) -> None:
        self._width, self._end = width, 0
        self._columns: tuple[Array, ...] = ()
        self._allocate(_FIRST_ROWS)

    def write(self, rows: Ints32, values: Floats, time: Ints, arrival: Ints, keys: Ints) -> None:
        """Write the values of rows with their causes; `keys` are the ids of all rows."""
        end = self._end + len(rows)
        if end > len(self._columns[0]):
            self._allocate(2 * end)
        _append(self._end, rows, values, time, arrival, keys, *self._columns)
        self._end = end

    def take(self, source: int) -> list[Block]:
        """All rows as one block, if there are any; the buffer is empty then."""
        end = self._end
        if not end:
            return []
        columns = np.zeros(end, np.uint8), *(column[:end] for column in self._columns)
        self._end = 0
        self._allocate(_rows_after(end))
        return [Block(OUTPUT, source, source, columns)]

    def _allocate(self, rows: int) -> None:
        """Make a buffer of this many rows, with the rows written so far."""
        written, end = self._columns, self._end
        self._columns = (
            np.empty(rows, INT64), np.empty(rows, INT64), np.empty((rows, self._width), FLOAT32),
            np.empty(rows, INT64),
        )  # fmt: skip
        if end:
            for new, old in zip(self._columns, written, strict=True):
                new[:end] = old[:end]


def _rows_after(rows: int) -> int:
    return min(max(_FIRST_ROWS, 2 * rows), _MOST_ROWS)


@lean
def _append(
    begin: int, rows: Ints32, values: Floats, times: Ints, arrivals: Ints, keys: Ints,
    time: Ints, arrival: Ints, value: Floats, key: Ints,
) -> None:  # fmt: skip
    for i in range(len(rows)):
        at = begin + i
        time[at], arrival[at], key[at] = times[i], arrivals[i], keys[rows[i]]
        for k in range(values.shape[1]):
            value[at, k] = values[i, k]


@lean
def _write(
    part: int, rows: Ints32, times: Ints, arrivals: Ints, messages: Floats,
    new_parts: Ints32, new_slots: Ints32, new_rows: Ints32, new_messages: Floats,
    slots: Ints32, first: Ints32, links: Ints32, ends: Ints, wanted: Ints,
    slot: Ints32, time: Ints, arrival: Ints, message: Floats,
) -> int:  # fmt: skip
    """Returns 0; or, if a buffer is too short, writes nothing and returns how many rows it needs.

    `ends` are the rows written in each buffer; `wanted` is scratch.
    """
    for p in range(len(ends)):
        wanted[p] = ends[p]
    wanted[part] += len(rows)
    for row in rows:
        at = first[row] - 1
        while at >= 0:
            wanted[links[at, LINK_PART]] += 1
            at = links[at, NEXT_LINK] - 1
    for p in new_parts:
        wanted[p] += 1
    most = 0
    for p in range(len(ends)):
        most = max(most, wanted[p])
    if most > slot.shape[1]:
        return most
    width = messages.shape[1]
    for i in range(len(rows)):
        p, to, at = part, slots[rows[i]], first[rows[i]] - 1
        while True:
            j = ends[p]
            ends[p] += 1
            slot[p, j], time[p, j], arrival[p, j] = to, times[i], arrivals[i]
            for k in range(width):
                message[p, j, k] = messages[i, k]
            if at < 0:
                break
            p, to, at = links[at, LINK_PART], links[at, LINK_SLOT], links[at, NEXT_LINK] - 1
    for i in range(len(new_parts)):
        p = new_parts[i]
        j = ends[p]
        ends[p] += 1
        slot[p, j], time[p, j], arrival[p, j] = new_slots[i], -NEVER, NEVER
        for k in range(width):
            message[p, j, k] = new_messages[new_rows[i], k]
    return 0
