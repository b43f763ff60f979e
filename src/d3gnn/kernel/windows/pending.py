"""The pending vertices of an operator part, and when each of them is due.

A touched vertex is pending until its deadline; further touches are merged with the first. Pending vertices
are in a heap by the time at which to look at them again. A postponed deadline is noticed then, so touching a
pending vertex costs no more than its own row.
"""

from __future__ import annotations

import numpy as np

from d3gnn.kernel.compiled import inlined, lean, specialised
from d3gnn.kernel.part_state import PartState
from d3gnn.kernel.prefetch import AHEAD, fetch
from d3gnn.kernel.touched import ARRIVAL, NEVER, TIME, TOUCHES, VERTEX, append, keep, size
from d3gnn.kernel.windows.base import Window, microseconds
from d3gnn.kernel.windows.base import no_look_ahead as look_ahead
from d3gnn.kernel.windows.sketch import COLUMNS, ROWS
from d3gnn.kernel.windows.tumbling import due_after_pause as due_at
from d3gnn.types import Bytes, Doubles, Ints, Ints32

# Columns by vertex: its deadline (0: not pending), the latest possible deadline, its valid key in the heap
# (0: none), the number of its cohort, the newest event time and oldest arrival of its causes, and how often
# it was touched. With one more column, a row is one cache line.
DEADLINE, LATEST, KEY, COHORT, PENDING_TIME, PENDING_ARRIVAL, PENDING_TOUCHES = range(7)
_ROW = 8
# Columns by cohort, the vertices that became pending at the same time: that time, and how many still are.
_SINCE, _LEFT = range(2)
# Counters: entries of the heap, pending vertices, merged touches, the first cohort with pending vertices, the
# end of the cohorts, the number of the cohort at row 0, and a time before which nothing is due.
_HEAP, _WAITING, _MERGED, _HEAD, _TAIL, _NUMBER, _QUIET = range(7)
COUNTERS = 7

_NOTHING = np.zeros(0, np.uint8)
_Known = tuple[Doubles, int, int, Ints, Ints, Ints, Ints32, Ints]
#: If more than one in this many entries of the heap is due, one pass over all is cheaper than single pops.
_SHARE_OF_POPS = 16
#: A vertex takes less time here than a row of numbers elsewhere, so more of them are prefetched.
_FAR_AHEAD = 2 * AHEAD


class Pending:
    """The pending vertices of one operator part under a window."""

    def __init__(self, part_state: PartState, window: Window) -> None:
        counters = part_state.counters("window", COUNTERS)
        self.window, self._part_state, self._counters = window, part_state, counters
        self._numbers = memoryview(counters)  # type: ignore[arg-type]  # the same, faster to read single numbers
        self.rows = part_state.array("pending", np.int64, _ROW)
        self._heap = part_state.array("pending_heap", np.int64, 2)
        # In order of time.
        self._cohorts = part_state.array("pending_cohorts", np.int64, 2)
        self._sketch = part_state.array("pending_sketch", np.int32, COLUMNS)
        longest, grain = microseconds(window.longest), max(1, microseconds(window.coalesce))
        self._rules = np.array(window.numbers, np.float64), longest, grain
        steps = {"due_at": window.due_at, "look_ahead": window.look_ahead}
        self._hold = specialised(_hold, window.name, **steps)
        #: The arguments of the compiled loop: rules, arrays and counters.
        self._known: _Known
        self._generation = -1

    def reserve(self, rows: int) -> None:
        """Room for vertices below this, and for their rates."""
        self.rows.reserve(rows)
        if self.window.keeps_rates:
            self._sketch.reserve(ROWS)

    def __len__(self) -> int:
        """How many vertices are pending."""
        return self._numbers[_WAITING]

    @property
    def merged(self) -> int:
        """How many touches were merged with another one of the same vertex."""
        return int(self._counters[_MERGED])

    def look_at(self) -> int:
        """When to look again: at the next deadline, or earlier if something was postponed or cancelled."""
        return int(self._heap.data[0, 0]) if self._counters[_HEAP] else NEVER

    def next_deadline(self) -> int | None:
        """When the next pending vertex is due; None if none is pending. Looks at all of them."""
        if not len(self):
            return None
        heap = self._heap.data[: int(self._counters[_HEAP])]
        rows = self.rows.data[heap[:, 1]]
        valid = (rows[:, DEADLINE] > 0) & (rows[:, KEY] == heap[:, 0])
        return int(rows[valid, DEADLINE].min())

    def oldest(self) -> int | None:
        """When the longest pending vertex became pending; None if none is."""
        return int(self._cohorts.data[self._counters[_HEAD], _SINCE]) if len(self) else None

    def age_ms(self, now: int) -> int:
        """For how many milliseconds the longest pending vertex has been pending."""
        oldest = self.oldest()
        return 0 if oldest is None else (now - oldest) // 1000

    def hold(self, touched: Ints, now: int, drain: bool, at_once: Bytes = _NOTHING, firsts: int = 0) -> int:
        """Make the touched vertices pending and replace them in the set, which is closed then, by those that
        are due. Returns how many these are.

        `at_once` is 1 for vertices that are never delayed, since they were never sent; at least `firsts` of
        them were touched. With `drain`, all pending vertices are due.
        """
        if self._numbers[_QUIET] > now and not drain and size(touched) == firsts:
            return firsts  # common: only new vertices were touched
        while True:
            if self._generation != self._part_state.generation:
                arrays = self.rows.data, self._heap.data, self._cohorts.data, self._sketch.data
                self._known = (*self._rules, *arrays, self._counters)
                self._generation = self._part_state.generation
            due = self._hold(touched, now, drain, at_once, *self._known)
            if due >= 0:
                return due
            # Vertices whose deadline moved forward leave stale keys. With twice the room that valid keys
            # need, looking for them is free on average.
            _drop_stale(self.rows.data, self._heap.data, self._counters)
            self._heap.reserve(2 * (int(self._counters[_HEAP]) + size(touched)))
            self._cohorts.reserve(int(self._counters[_TAIL]) + 1)

    def cancel(self, vertices: Ints32) -> None:
        """These vertices are no longer pending, and are not sent."""
        _cancel(vertices, self.rows.data, self._cohorts.data, self._counters)


@lean
def _hold(
    touched: Ints, now: int, drain: bool, at_once: Bytes, numbers: Doubles, longest: int, grain: int,
    rows: Ints, heap: Ints, cohorts: Ints, sketch: Ints32, counters: Ints,
) -> int:  # fmt: skip
    """Returns how many are due; or -1, having done nothing, if heap or cohorts are too small."""
    last, kept = touched[0, VERTEX], 0
    if counters[_HEAP] + last > len(heap) or counters[_TAIL] + 1 > len(cohorts):
        return -1
    latest = _latest(now + longest, now, grain)
    for at in range(1 - _FAR_AHEAD, last + 1):
        next = touched[min(last, at + _FAR_AHEAD), VERTEX]
        fetch(rows, next)
        look_ahead(next, sketch)
        if at < 1:
            continue
        v, time, arrival = touched[at, VERTEX], touched[at, TIME], touched[at, ARRIVAL]
        touches = touched[at, TOUCHES]
        waited, deadline = rows[v, DEADLINE] > 0, now
        if waited:
            time, arrival = max(time, rows[v, PENDING_TIME]), min(arrival, rows[v, PENDING_ARRIVAL])
        else:
            rows[v, LATEST], rows[v, PENDING_TOUCHES] = latest, 0
        if len(at_once) == 0 or at_once[v] == 0:
            counters[_MERGED] += touches if waited else touches - 1
            total = touches + rows[v, PENDING_TOUCHES]
            wish = due_at(v, touches, total, now, numbers, sketch)
            if wish > now:
                if wish < rows[v, LATEST]:
                    wish = _rounded(wish, grain)
                deadline = min(wish, rows[v, LATEST])
            touches = total
        if drain or deadline <= now:
            kept += 1
            touched[kept, VERTEX], touched[kept, TIME], touched[kept, ARRIVAL] = v, time, arrival
            if waited:
                _stop_pending(v, rows, cohorts, counters)
            continue
        if not waited:
            _become_pending(v, now, rows, cohorts, counters)
        rows[v, DEADLINE], rows[v, PENDING_TOUCHES] = deadline, touches
        rows[v, PENDING_TIME], rows[v, PENDING_ARRIVAL] = time, arrival
        if rows[v, KEY] == 0 or deadline < rows[v, KEY]:
            _push(deadline, v, rows, heap, counters)
    keep(touched, kept)
    # A few due entries are popped one by one; many are swept in one pass.
    few = 0 if _many_due(heap, counters[_HEAP], now) else counters[_HEAP] // _SHARE_OF_POPS
    while counters[_HEAP] > 0 and (drain or heap[0, 0] <= now):
        if few == 0:
            _sweep(touched, now, drain, rows, heap, cohorts, counters)
            break
        few -= 1
        key, v = heap[0, 0], heap[0, 1]
        _pop(heap, counters)
        if _stays(key, v, touched, now, drain, rows, cohorts, counters):
            _push(rows[v, DEADLINE], v, rows, heap, counters)
    _skip_empty_cohorts(cohorts, counters)
    counters[_QUIET] = heap[0, 0] if counters[_HEAP] > 0 else NEVER
    return touched[0, VERTEX]  # type: ignore[no-any-return]


@inlined
def _rounded(deadline: int, grain: int) -> int:
    """The next multiple of the grain."""
    return -(-deadline // grain) * grain


@inlined
def _latest(end: int, now: int, grain: int) -> int:
    """The last multiple of the grain up to the end; the end itself if no multiple is left."""
    last = end // grain * grain
    return last if last > now else end


@inlined
def _stays(
    key: int, v: int, touched: Ints, now: int, drain: bool, rows: Ints, cohorts: Ints, counters: Ints
) -> bool:
    """Handle a due key of the heap: send the vertex, or return True if it was postponed and goes back."""
    if rows[v, KEY] != key:
        return False  # stale: the vertex has an earlier key
    rows[v, KEY] = 0
    if rows[v, DEADLINE] == 0:
        return False  # sent or cancelled
    if rows[v, DEADLINE] > now and not drain:
        return True
    append(touched, v, rows[v, PENDING_TIME], rows[v, PENDING_ARRIVAL])
    _stop_pending(v, rows, cohorts, counters)
    return False


@inlined
def _become_pending(v: int, now: int, rows: Ints, cohorts: Ints, counters: Ints) -> None:
    """A vertex becomes pending."""
    at = counters[_TAIL] - 1
    if counters[_HEAD] > at or cohorts[at, _SINCE] != now:
        at += 1
        counters[_TAIL] += 1
        cohorts[at, _SINCE], cohorts[at, _LEFT] = now, 0
    cohorts[at, _LEFT] += 1
    rows[v, COHORT] = counters[_NUMBER] + at
    counters[_WAITING] += 1


@inlined
def _stop_pending(v: int, rows: Ints, cohorts: Ints, counters: Ints) -> None:
    """A vertex is no longer pending."""
    rows[v, DEADLINE] = 0
    cohorts[rows[v, COHORT] - counters[_NUMBER], _LEFT] -= 1
    counters[_WAITING] -= 1


@inlined
def _skip_empty_cohorts(cohorts: Ints, counters: Ints) -> None:
    """Skip leading cohorts without pending vertices. The cohorts move to the front when half of the array is
    unused, which is free on average.
    """
    head, tail = counters[_HEAD], counters[_TAIL]
    while head < tail and cohorts[head, _LEFT] == 0:
        head += 1
    if 2 * head >= tail:
        for at in range(head, tail):
            cohorts[at - head, _SINCE], cohorts[at - head, _LEFT] = cohorts[at, _SINCE], cohorts[at, _LEFT]
        counters[_TAIL], counters[_NUMBER] = tail - head, counters[_NUMBER] + head
        head = 0
    counters[_HEAD] = head


@inlined
def _many_due(heap: Ints, n: int, now: int) -> bool:
    """Whether samples find many due entries: deadlines often fall together."""
    if n == 0 or heap[0, 0] > now:
        return False
    for i in range(1, _SHARE_OF_POPS + 1):  # noqa: SIM110  # compiled
        if heap[i * n // (_SHARE_OF_POPS + 1), 0] <= now:
            return True
    return False


@inlined
def _sweep(
    touched: Ints, now: int, drain: bool, rows: Ints, heap: Ints, cohorts: Ints, counters: Ints
) -> None:
    """Remove all due entries in one pass over the heap, and restore its order."""
    left, last = 0, counters[_HEAP] - 1
    for at in range(counters[_HEAP]):
        fetch(rows, heap[min(last, at + _FAR_AHEAD), 1])
        key, v = heap[at, 0], heap[at, 1]
        if drain or key <= now:
            if not _stays(key, v, touched, now, drain, rows, cohorts, counters):
                continue
            key = rows[v, KEY] = rows[v, DEADLINE]
        heap[left, 0], heap[left, 1] = key, v
        left += 1
    counters[_HEAP] = left
    _put_in_order(left, heap)


@lean
def _drop_stale(rows: Ints, heap: Ints, counters: Ints) -> None:
    """Remove stale keys: of vertices that have another key, or are not pending."""
    left = 0
    for at in range(counters[_HEAP]):
        key, v = heap[at, 0], heap[at, 1]
        if rows[v, KEY] != key:
            continue
        if rows[v, DEADLINE] == 0:
            rows[v, KEY] = 0
            continue
        heap[left, 0], heap[left, 1] = key, v
        left += 1
    counters[_HEAP] = left
    _put_in_order(left, heap)


@inlined
def _put_in_order(n: int, heap: Ints) -> None:
    """Make a heap of n entries in any order."""
    for at in range(n // 2 - 1, -1, -1):
        _sink(at, heap[at, 0], heap[at, 1], n, heap)


@inlined
def _push(key: int, v: int, rows: Ints, heap: Ints, counters: Ints) -> None:
    rows[v, KEY] = key
    at = counters[_HEAP]
    counters[_HEAP] += 1
    while at > 0:
        above = (at - 1) // 2
        if heap[above, 0] <= key:
            break
        heap[at, 0], heap[at, 1] = heap[above, 0], heap[above, 1]
        at = above
    heap[at, 0], heap[at, 1] = key, v


@inlined
def _pop(heap: Ints, counters: Ints) -> None:
    counters[_HEAP] -= 1
    n = counters[_HEAP]
    _sink(0, heap[n, 0], heap[n, 1], n, heap)


@inlined
def _sink(at: int, key: int, v: int, n: int, heap: Ints) -> None:
    """Sink an entry of a heap of n to its place, at `at` or below."""
    while True:
        below = 2 * at + 1
        if below >= n:
            break
        if below + 1 < n and heap[below + 1, 0] < heap[below, 0]:
            below += 1
        if heap[below, 0] >= key:
            break
        heap[at, 0], heap[at, 1] = heap[below, 0], heap[below, 1]
        at = below
    heap[at, 0], heap[at, 1] = key, v


@lean
def _cancel(vertices: Ints32, rows: Ints, cohorts: Ints, counters: Ints) -> None:
    for v in vertices:
        if rows[v, DEADLINE] > 0:
            _stop_pending(v, rows, cohorts, counters)
    _skip_empty_cohorts(cohorts, counters)
