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
from d3gnn.kernel.touched import ARRIVAL, MARK, NEVER, TIME, TOUCHES, VERTEX, size, touch
from d3gnn.kernel.windows.adaptive import AdaptiveSession
from d3gnn.kernel.windows.base import SECOND, Window
from d3gnn.kernel.windows.count import Count
from d3gnn.kernel.windows.session import Session
from d3gnn.kernel.windows.sketch import COLUMNS, ROWS, count_and_rate, fading, fetch_places
from d3gnn.kernel.windows.tumbling import Tumbling
from d3gnn.types import Bytes, Doubles, Ints, Ints32

# Columns by vertex: its deadline (0: nothing is pending), its valid key in the heap (0: none), when it was
# first touched, the newest event time and oldest arrival behind it, and how often it was touched.
DEADLINE, KEY, FIRST, PENDING_TIME, PENDING_ARRIVAL, PENDING_TOUCHES = range(6)
# Counters: entries of the heap, vertices that wait, touches that were merged with another one, vertices that
# were sent after they waited, where the queue begins and ends.
_HEAP, _WAITING, _MERGED, _SENT, _HEAD, _TAIL = range(6)
COUNTERS = 6

_TUMBLING, _SESSION, _ADAPTIVE, _COUNT = Tumbling.code, Session.code, AdaptiveSession.code, Count.code
_NOTHING = np.zeros(0, np.uint8)
_Known = tuple[int, Doubles, int, int, Doubles, Ints, Ints, Ints, Ints32, Ints]
#: A pop costs so many steps: with more than this share of a heap due, one pass over all of it is cheaper.
_SHARE_OF_POPS = 16


class Pending:
    """The pending vertices of one operator part under a window; `counters` are some of the space's."""

    def __init__(self, space: Space, window: Window, counters: Ints) -> None:
        self.window, self._space, self._counters = window, space, counters
        self.rows = space.array("pending", np.int64, 6)
        self._heap = space.array("pending_heap", np.int64, 2)
        # Who waits, in the order of coming, with the time of it; behind the head there may be some that have
        # been sent since.
        self._queue = space.array("pending_queue", np.int64, 2)
        self._sketch = space.array("pending_sketch", np.int32, COLUMNS)
        if isinstance(window, AdaptiveSession):
            self._sketch.reserve(ROWS)
        fades = fading(window.weight if isinstance(window, AdaptiveSession) else 1.0)
        numbers = np.zeros(4)
        numbers[: len(window.numbers)] = window.numbers
        longest, grain = int(window.longest * SECOND), max(1, int(window.coalesce * SECOND))
        self._rules = window.code, numbers, longest, grain, fades
        #: The window's rules, the arrays, and the counters.
        self._known: _Known
        self._generation = -1

    def __len__(self) -> int:
        """How many vertices wait."""
        return int(self._counters[_WAITING])

    @property
    def merged(self) -> int:
        """Touches that were merged with another one of the same vertex."""
        return int(self._counters[_MERGED])

    @property
    def sent(self) -> int:
        """Vertices that were sent after they waited."""
        return int(self._counters[_SENT])

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
        if not len(self):
            return None
        _pass_sent(self.rows.data, self._queue.data, self._counters)
        return int(self._queue.data[int(self._counters[_HEAD]), 0])

    def hold(self, touched: Ints, now: int, drain: bool, at_once: Bytes = _NOTHING) -> int:
        """Let the touched vertices wait, and put those that are due into the set in their place; how many
        these are.

        `at_once` is 1 for vertices that do not wait. With `drain`, nothing waits any longer.
        """
        while True:
            if self._generation != self._space.generation:
                arrays = self.rows.data, self._heap.data, self._queue.data, self._sketch.data
                self._known = (*self._rules, *arrays, self._counters)
                self._generation = self._space.generation
            due = _hold(touched, now, drain, at_once, *self._known)
            if due >= 0:
                return due
            more = size(touched)
            self._heap.reserve(int(self._counters[_HEAP]) + more)
            self._queue.reserve(int(self._counters[_TAIL]) + more)

    def cancel(self, vertices: Ints32) -> None:
        """Nothing is pending for these any more."""
        _cancel(vertices, self.rows.data, self._counters)


@lean
def _hold(
    touched: Ints, now: int, drain: bool, at_once: Bytes, code: int, numbers: Doubles, longest: int,
    grain: int, fades: Doubles, rows: Ints, heap: Ints, queue: Ints, sketch: Ints32, counters: Ints,
) -> int:  # fmt: skip
    """How many are due; or, where heap and queue have no room for what waits, do nothing and say -1."""
    more = touched[0, VERTEX]
    if counters[_HEAP] + more > len(heap) or counters[_TAIL] + more > len(queue):
        return -1
    kept = 0
    last, period = touched[0, VERTEX], now // int(numbers[3]) if code == _ADAPTIVE else 0
    for at in range(1, last + 1):
        next = touched[min(last, at + AHEAD), VERTEX]
        fetch(rows, next)
        fetch(touched, next + 1)
        if code == _ADAPTIVE:
            fetch_places(sketch, next)
        v, time, arrival = touched[at, VERTEX], touched[at, TIME], touched[at, ARRIVAL]
        touches = touched[at, TOUCHES]
        waited = rows[v, DEADLINE] > 0
        if waited:
            time, arrival = max(time, rows[v, PENDING_TIME]), min(arrival, rows[v, PENDING_ARRIVAL])
            counters[_MERGED] += touches
            touches += rows[v, PENDING_TOUCHES]
        else:
            rows[v, FIRST] = now
            counters[_MERGED] += touches - 1
        first, fresh, deadline = rows[v, FIRST], touched[at, TOUCHES], now
        if len(at_once) == 0 or at_once[v] == 0:
            deadline = _deadline(v, now, first, touches, fresh, code, numbers, period, sketch, fades)
        if deadline > now:
            deadline = min(-(-deadline // grain) * grain, _latest(first, longest, grain))
        if drain or deadline <= now:
            kept += 1
            touched[kept, VERTEX], touched[kept, TIME], touched[kept, ARRIVAL] = v, time, arrival
            touched[kept, TOUCHES] = touches
            touched[v + 1, MARK] = kept
            if waited:
                rows[v, DEADLINE] = 0
                counters[_WAITING] -= 1
                counters[_SENT] += 1
            continue
        touched[v + 1, MARK] = 0
        rows[v, DEADLINE], rows[v, PENDING_TOUCHES] = deadline, touches
        rows[v, PENDING_TIME], rows[v, PENDING_ARRIVAL] = time, arrival
        if not waited:
            counters[_WAITING] += 1
            queue[counters[_TAIL], 0], queue[counters[_TAIL], 1] = now, v
            counters[_TAIL] += 1
        if rows[v, KEY] == 0 or deadline < rows[v, KEY]:
            _push(deadline, v, rows, heap, counters)
    touched[0, VERTEX] = kept
    # Few are taken from the top one by one; of many, all that is left is gone through at once.
    few = 0 if _many_due(heap, counters[_HEAP], now) else counters[_HEAP] // _SHARE_OF_POPS
    while counters[_HEAP] > 0 and (drain or heap[0, 0] <= now):
        if few == 0:
            _sweep(touched, now, drain, rows, heap, counters)
            break
        few -= 1
        key, v = heap[0, 0], heap[0, 1]
        _pop(heap, counters)
        if _stays(key, v, touched, now, drain, rows, counters):
            _push(rows[v, DEADLINE], v, rows, heap, counters)
    _pass_sent(rows, queue, counters)
    _close_up(queue, counters)
    return touched[0, VERTEX]  # type: ignore[no-any-return]


@inlined
def _stays(key: int, v: int, touched: Ints, now: int, drain: bool, rows: Ints, counters: Ints) -> bool:
    """Send a vertex whose key in the heap has come up; whether it was postponed, and goes back instead."""
    if rows[v, KEY] != key:
        return False  # an earlier one was put in for the same vertex
    rows[v, KEY] = 0
    if rows[v, DEADLINE] == 0:
        return False  # sent, or cancelled
    if rows[v, DEADLINE] > now and not drain:
        return True
    touch(touched, v, rows[v, PENDING_TIME], rows[v, PENDING_ARRIVAL])
    rows[v, DEADLINE] = 0
    counters[_WAITING] -= 1
    counters[_SENT] += 1
    return False


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
def _sweep(touched: Ints, now: int, drain: bool, rows: Ints, heap: Ints, counters: Ints) -> None:
    """Take all that has come up from the heap, in one pass over it, and put the rest in order again."""
    left, last = 0, counters[_HEAP] - 1
    for at in range(counters[_HEAP]):
        next = heap[min(last, at + 2 * AHEAD), 1]
        fetch(rows, next)
        fetch(touched, next + 1)
        key, v = heap[at, 0], heap[at, 1]
        if drain or key <= now:
            if not _stays(key, v, touched, now, drain, rows, counters):
                continue
            key = rows[v, KEY] = rows[v, DEADLINE]
        heap[left, 0], heap[left, 1] = key, v
        left += 1
    counters[_HEAP] = left
    for at in range(left // 2 - 1, -1, -1):
        _sink(at, heap[at, 0], heap[at, 1], left, heap)


@inlined
def _latest(first: int, longest: int, grain: int) -> int:
    """The last multiple of the grain that is not too late; the very end, where there is none."""
    end = first + longest
    return end // grain * grain if end // grain * grain > first else end


@lean
def _pass_sent(rows: Ints, queue: Ints, counters: Ints) -> None:
    """Let the queue begin with one that still waits."""
    while counters[_HEAD] < counters[_TAIL]:
        first, v = queue[counters[_HEAD], 0], queue[counters[_HEAD], 1]
        if rows[v, DEADLINE] > 0 and rows[v, FIRST] == first:
            break
        counters[_HEAD] += 1


@inlined
def _close_up(queue: Ints, counters: Ints) -> None:
    """Move the queue to the front when half of its place is empty: on the whole, that costs nothing."""
    head, tail = counters[_HEAD], counters[_TAIL]
    if 2 * head >= tail:
        for at in range(head, tail):
            queue[at - head, 0], queue[at - head, 1] = queue[at, 0], queue[at, 1]
        counters[_HEAD], counters[_TAIL] = 0, tail - head


@inlined
def _deadline(
    v: int, now: int, first: int, touches: int, fresh: int, code: int, numbers: Doubles, period: int,
    sketch: Ints32, fades: Doubles,
) -> int:  # fmt: skip
    """When a vertex is due that was touched just now, `fresh` times of `touches` in all."""
    if code == _TUMBLING:
        return first + int(numbers[0])
    if code == _SESSION:
        return now + int(numbers[0])
    if code == _ADAPTIVE:
        rate = count_and_rate(sketch, v, fresh, period, fades)
        return now + int(min(max(numbers[2] / rate, numbers[0]), numbers[1]))
    return now if touches >= numbers[0] else NEVER // 2


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
def _cancel(vertices: Ints32, rows: Ints, counters: Ints) -> None:
    for v in vertices:
        if rows[v, DEADLINE] > 0:
            rows[v, DEADLINE] = 0
            counters[_WAITING] -= 1
