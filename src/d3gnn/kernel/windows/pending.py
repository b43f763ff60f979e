"""What is pending at the vertices of an operator part, and when each of them is due.

A vertex that is touched waits until its deadline; what touches it meanwhile is merged. The vertices that wait
stand in a heap by the time at which to look at them: a deadline that was postponed is found out then, so that
touching a vertex that waits costs nothing but its own row.
"""

from __future__ import annotations

import numpy as np

from d3gnn.kernel.arrays import Space
from d3gnn.kernel.compiled import inlined, lean
from d3gnn.kernel.prefetch import AHEAD, fetch
from d3gnn.kernel.touched import ARRIVAL, NEVER, TIME, TOUCHES, VERTEX, append, keep, size
from d3gnn.kernel.windows.adaptive import AdaptiveSession
from d3gnn.kernel.windows.base import Window, microseconds
from d3gnn.kernel.windows.count import Count
from d3gnn.kernel.windows.sketch import COLUMNS, ROWS, count_and_rate, fading, fetch_places
from d3gnn.types import Bytes, Doubles, Ints, Ints32

# Columns by vertex: its deadline (0: nothing is pending), the latest that this may become, its valid key in
# the heap (0: none), with whom it began to wait (the number of a crowd), the newest event time and oldest
# arrival behind it, and how often it was touched. With one more, a row is one line of the caches.
DEADLINE, LATEST, KEY, CROWD, PENDING_TIME, PENDING_ARRIVAL, PENDING_TOUCHES = range(7)
_ROW = 8
# Columns by crowd, which is all that began to wait at the same time: that time, and how many still wait.
_SINCE, _LEFT = range(2)
# Counters: entries of the heap, vertices that wait, touches that were merged with another one, where among
# the crowds the oldest is in which somebody waits and where they end, the number of the first one there, and
# the time until which nothing is due for certain.
_HEAP, _WAITING, _MERGED, _HEAD, _TAIL, _NUMBER, _QUIET = range(7)
COUNTERS = 7

_ADAPTIVE, _COUNT = AdaptiveSession.code, Count.code
_NOTHING = np.zeros(0, np.uint8)
_Known = tuple[int, Doubles, int, int, Doubles, Ints, Ints, Ints, Ints32, Ints]
#: A pop costs so many steps: with more than this share of a heap due, one pass over all of it is cheaper.
_SHARE_OF_POPS = 16
#: What is done for a vertex takes less time than for a row of numbers: more of them have to be on their way.
_FAR_AHEAD = 2 * AHEAD


class Pending:
    """The pending vertices of one operator part under a window; `counters` are some of the space's."""

    def __init__(self, space: Space, window: Window, counters: Ints) -> None:
        self.window, self._space, self._counters = window, space, counters
        self._numbers = memoryview(counters)  # type: ignore[arg-type]  # the same, faster to look at
        self.rows = space.array("pending", np.int64, _ROW)
        self._heap = space.array("pending_heap", np.int64, 2)
        # In the order of coming.
        self._crowds = space.array("pending_crowds", np.int64, 2)
        self._sketch = space.array("pending_sketch", np.int32, COLUMNS)
        fades = fading(window.weight if isinstance(window, AdaptiveSession) else 1.0)
        numbers = np.zeros(4)
        numbers[: len(window.numbers)] = window.numbers
        longest, grain = microseconds(window.longest), max(1, microseconds(window.coalesce))
        self._rules = window.code, numbers, longest, grain, fades
        #: The window's rules, the arrays, and the counters.
        self._known: _Known
        self._generation = -1

    def reserve(self, rows: int) -> None:
        """Room for vertices below this, and for what is known of their rates."""
        self.rows.reserve(rows)
        if isinstance(self.window, AdaptiveSession):
            self._sketch.reserve(ROWS)

    def __len__(self) -> int:
        """How many vertices wait."""
        return self._numbers[_WAITING]

    @property
    def merged(self) -> int:
        """Touches that were merged with another one of the same vertex."""
        return int(self._counters[_MERGED])

    def look_at(self) -> int:
        """When to look again: at the next deadline, or before it if something was postponed or cancelled."""
        return int(self._heap.data[0, 0]) if self._counters[_HEAP] else NEVER

    def next_deadline(self) -> int | None:
        """When the next of those that wait is due; None if nothing waits. Looks at all of them."""
        if not len(self):
            return None
        heap = self._heap.data[: int(self._counters[_HEAP])]
        rows = self.rows.data[heap[:, 1]]
        valid = (rows[:, DEADLINE] > 0) & (rows[:, KEY] == heap[:, 0])
        return int(rows[valid, DEADLINE].min())

    def oldest(self) -> int | None:
        """Since when the one that waits longest has waited; None if nothing waits."""
        return int(self._crowds.data[self._counters[_HEAD], _SINCE]) if len(self) else None

    def age_ms(self, now: int) -> int:
        """For how many milliseconds the one that waits longest has waited."""
        oldest = self.oldest()
        return 0 if oldest is None else (now - oldest) // 1000

    def hold(self, touched: Ints, now: int, drain: bool, at_once: Bytes = _NOTHING, firsts: int = 0) -> int:
        """Let the touched vertices wait, and put those that are due into the set in their place, which is
        complete then; how many these are.

        `at_once` is 1 for vertices that do not wait, and never have, as nothing was sent of them yet; of
        these at least `firsts` were touched.
        With `drain`, nothing waits any longer.
        """
        if self._numbers[_QUIET] > now and not drain and size(touched) == firsts:
            return firsts  # in many a batch, only new vertices were touched
        while True:
            if self._generation != self._space.generation:
                arrays = self.rows.data, self._heap.data, self._crowds.data, self._sketch.data
                self._known = (*self._rules, *arrays, self._counters)
                self._generation = self._space.generation
            due = _hold(touched, now, drain, at_once, *self._known)
            if due >= 0:
                return due
            # Vertices whose deadline has moved forward have left keys behind. With twice the room that the
            # others need, looking for them costs nothing on the whole.
            _drop_stale(self.rows.data, self._heap.data, self._counters)
            self._heap.reserve(2 * (int(self._counters[_HEAP]) + size(touched)))
            self._crowds.reserve(int(self._counters[_TAIL]) + 1)

    def cancel(self, vertices: Ints32) -> None:
        """Nothing is pending for these any more."""
        _cancel(vertices, self.rows.data, self._crowds.data, self._counters)


@lean
def _hold(
    touched: Ints, now: int, drain: bool, at_once: Bytes, code: int, numbers: Doubles, longest: int,
    grain: int, fades: Doubles, rows: Ints, heap: Ints, crowds: Ints, sketch: Ints32, counters: Ints,
) -> int:  # fmt: skip
    """How many are due; or, where heap and crowds have no room for what waits, do nothing and say -1."""
    last, kept = touched[0, VERTEX], 0
    if counters[_HEAP] + last > len(heap) or counters[_TAIL] + 1 > len(crowds):
        return -1
    period = now // int(numbers[3]) if code == _ADAPTIVE else 0
    # What is touched now waits until then, if it may; adaptive windows have a time for each vertex.
    wish = NEVER // 2 if code in (_ADAPTIVE, _COUNT) else _rounded(now + int(numbers[0]), grain)
    latest = _latest(now + longest, now, grain)
    for at in range(1 - _FAR_AHEAD, last + 1):
        next = touched[min(last, at + _FAR_AHEAD), VERTEX]
        fetch(rows, next)
        if code == _ADAPTIVE:
            fetch_places(sketch, next)
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
            if code == _ADAPTIVE:
                rate = count_and_rate(sketch, v, touches, period, fades)
                wish = now + int(min(max(numbers[2] / rate, numbers[0]), numbers[1]))
                if wish < rows[v, LATEST]:
                    wish = _rounded(wish, grain)
            touches += rows[v, PENDING_TOUCHES]
            if code != _COUNT or touches < numbers[0]:
                deadline = min(wish, rows[v, LATEST])
        if drain or deadline <= now:
            kept += 1
            touched[kept, VERTEX], touched[kept, TIME], touched[kept, ARRIVAL] = v, time, arrival
            if waited:
                _go(v, rows, crowds, counters)
            continue
        if not waited:
            _come(v, now, rows, crowds, counters)
        rows[v, DEADLINE], rows[v, PENDING_TOUCHES] = deadline, touches
        rows[v, PENDING_TIME], rows[v, PENDING_ARRIVAL] = time, arrival
        if rows[v, KEY] == 0 or deadline < rows[v, KEY]:
            _push(deadline, v, rows, heap, counters)
    keep(touched, kept)
    # Few are taken from the top one by one; of many, all that is left is gone through at once.
    few = 0 if _many_due(heap, counters[_HEAP], now) else counters[_HEAP] // _SHARE_OF_POPS
    while counters[_HEAP] > 0 and (drain or heap[0, 0] <= now):
        if few == 0:
            _sweep(touched, now, drain, rows, heap, crowds, counters)
            break
        few -= 1
        key, v = heap[0, 0], heap[0, 1]
        _pop(heap, counters)
        if _stays(key, v, touched, now, drain, rows, crowds, counters):
            _push(rows[v, DEADLINE], v, rows, heap, counters)
    _pass_gone(crowds, counters)
    counters[_QUIET] = heap[0, 0] if counters[_HEAP] > 0 else NEVER
    return touched[0, VERTEX]  # type: ignore[no-any-return]


@inlined
def _rounded(deadline: int, grain: int) -> int:
    """The next multiple of the grain."""
    return -(-deadline // grain) * grain


@inlined
def _latest(end: int, now: int, grain: int) -> int:
    """The last multiple of the grain until the end; the end itself, where there is none from now on."""
    last = end // grain * grain
    return last if last > now else end


@inlined
def _stays(
    key: int, v: int, touched: Ints, now: int, drain: bool, rows: Ints, crowds: Ints, counters: Ints
) -> bool:
    """Send a vertex whose key in the heap has come up; whether it was postponed, and goes back instead."""
    if rows[v, KEY] != key:
        return False  # an earlier one was put in for the same vertex
    rows[v, KEY] = 0
    if rows[v, DEADLINE] == 0:
        return False  # sent, or cancelled
    if rows[v, DEADLINE] > now and not drain:
        return True
    append(touched, v, rows[v, PENDING_TIME], rows[v, PENDING_ARRIVAL])
    _go(v, rows, crowds, counters)
    return False


@inlined
def _come(v: int, now: int, rows: Ints, crowds: Ints, counters: Ints) -> None:
    """A vertex begins to wait."""
    at = counters[_TAIL] - 1
    if counters[_HEAD] > at or crowds[at, _SINCE] != now:
        at += 1
        counters[_TAIL] += 1
        crowds[at, _SINCE], crowds[at, _LEFT] = now, 0
    crowds[at, _LEFT] += 1
    rows[v, CROWD] = counters[_NUMBER] + at
    counters[_WAITING] += 1


@inlined
def _go(v: int, rows: Ints, crowds: Ints, counters: Ints) -> None:
    """A vertex waits no longer."""
    rows[v, DEADLINE] = 0
    crowds[rows[v, CROWD] - counters[_NUMBER], _LEFT] -= 1
    counters[_WAITING] -= 1


@inlined
def _pass_gone(crowds: Ints, counters: Ints) -> None:
    """Let the crowds begin with one in which somebody waits. They move to the front when half of their place
    is empty: on the whole, that costs nothing.
    """
    head, tail = counters[_HEAD], counters[_TAIL]
    while head < tail and crowds[head, _LEFT] == 0:
        head += 1
    if 2 * head >= tail:
        for at in range(head, tail):
            crowds[at - head, _SINCE], crowds[at - head, _LEFT] = crowds[at, _SINCE], crowds[at, _LEFT]
        counters[_TAIL], counters[_NUMBER] = tail - head, counters[_NUMBER] + head
        head = 0
    counters[_HEAD] = head


@inlined
def _many_due(heap: Ints, n: int, now: int) -> bool:
    """Whether a look here and there finds any that are due: deadlines fall together."""
    if n == 0 or heap[0, 0] > now:
        return False
    for i in range(1, _SHARE_OF_POPS + 1):  # noqa: SIM110  # compiled
        if heap[i * n // (_SHARE_OF_POPS + 1), 0] <= now:
            return True
    return False


@inlined
def _sweep(
    touched: Ints, now: int, drain: bool, rows: Ints, heap: Ints, crowds: Ints, counters: Ints
) -> None:
    """Take all that has come up from the heap, in one pass over it, and put the rest in order again."""
    left, last = 0, counters[_HEAP] - 1
    for at in range(counters[_HEAP]):
        fetch(rows, heap[min(last, at + _FAR_AHEAD), 1])
        key, v = heap[at, 0], heap[at, 1]
        if drain or key <= now:
            if not _stays(key, v, touched, now, drain, rows, crowds, counters):
                continue
            key = rows[v, KEY] = rows[v, DEADLINE]
        heap[left, 0], heap[left, 1] = key, v
        left += 1
    counters[_HEAP] = left
    _put_in_order(left, heap)


@lean
def _drop_stale(rows: Ints, heap: Ints, counters: Ints) -> None:
    """Forget the keys of vertices that have another one, or wait no longer."""
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
    """Put an entry where it belongs in a heap of n, at `at` or below."""
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
def _cancel(vertices: Ints32, rows: Ints, crowds: Ints, counters: Ints) -> None:
    for v in vertices:
        if rows[v, DEADLINE] > 0:
            _go(v, rows, crowds, counters)
    _pass_gone(crowds, counters)
