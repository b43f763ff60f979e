"""What the operators have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable
from time import perf_counter_ns
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from d3gnn.kernel.adjacency import Adjacency, Removed
from d3gnn.kernel.arrays import Space
from d3gnn.kernel.blocks import Block
from d3gnn.kernel.topology import Topology, apart
from d3gnn.kernel.windows import Window
from d3gnn.kernel.windows.pending import COUNTERS, Pending
from d3gnn.types import Bytes, Ints

#: Makes or opens the space of (operator, part).
Spaces = Callable[[str, int], Space]
State = TypeVar("State")
_NOTHING = np.zeros(0, np.uint8)
_NO_EDGES = (np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.int64))
#: Where in a space's counters those of its window begin.
WINDOW_COUNTERS = 32


class Moment(NamedTuple):
    """When a batch is taken in: the clock, in microseconds; whether nothing may stay pending; and whether all
    is made anew, so that nobody knows any more what was told before.
    """

    now: int
    drain: bool = False
    anew: bool = False


#: For batches that are not to wait, whatever the window.
AT_ONCE = Moment(0, drain=True)


def remove_edges(adjacency: Adjacency, removes: Block | None, leaves: Block | None) -> Removed | None:
    """Take out the edges that a batch removes, and those of vertices that leave; None if there are none."""
    if removes is None and leaves is None:
        return None
    return adjacency.remove(
        *(removes.columns if removes else _NO_EDGES), *(leaves.columns if leaves else _NO_EDGES)
    )


class Operator(ABC, Generic[State]):
    """One box of the dataflow: takes the blocks of a batch for one part, gives the blocks that it sends on.

    Everything a part remembers is in its space, so an operator object can be made anew at any time and go on.
    """

    name: str
    #: Whether another operator follows, which wants to know the topology, too.
    passes_on = True

    def __init__(self, spaces: Spaces, window: Window | None = None) -> None:
        self._spaces, self.window = spaces, window
        self._states: dict[int, State] = {}
        #: What was done, since the operator was made: messages, touched vertices and the like.
        self.metrics: Counter[str] = Counter()

    @abstractmethod
    def open(self, space: Space, part: int) -> State:
        """The state of a part, in its space."""

    def process(self, part: int, blocks: Iterable[Block], moment: Moment = AT_ONCE) -> list[Block]:
        """Take in all blocks that a batch has for this part; the blocks to send on, topology among them."""
        topology, rest = apart(blocks)
        try:
            made = self.step(part, topology, rest, moment)
        finally:  # after an error, too: nothing may be left for another batch
            together = self.together(part)
        made += together
        return [*topology.blocks, *made] if self.passes_on else made

    @abstractmethod
    def step(self, part: int, topology: Topology, blocks: list[Block], moment: Moment) -> list[Block]:
        """Take in what a batch does to this part, and the other blocks that it has for it; what this makes of
        them, but for what is put together.
        """

    def together(self, source: int = 0) -> list[Block]:
        """What was put together, by one part or more, since this was last asked for; as sent by `source`."""
        return []

    def pending(self, part: int) -> Pending | None:
        """What waits in the window of a part; None without a window."""
        return None

    def open_window(self, space: Space) -> Pending | None:
        """What waits in a space, if there is a window."""
        if self.window is None:
            return None
        return Pending(space, self.window, space.counters[WINDOW_COUNTERS : WINDOW_COUNTERS + COUNTERS])

    def hold(
        self, pending: Pending, touched: Ints, moment: Moment, at_once: Bytes = _NOTHING, firsts: int = 0
    ) -> int:
        """In place of the touched vertices come those whose time has come, `at_once` ones among them, of
        which at least `firsts` were touched; how many these are.
        """
        begun = perf_counter_ns()
        due = pending.hold(touched, moment.now, moment.drain, at_once, firsts)
        ended, metrics = perf_counter_ns(), self.metrics
        metrics["window_ns"] += ended - begun
        metrics["forwards"] += due
        return due

    def state(self, part: int) -> State:
        state = self._states.get(part)
        if state is None:
            state = self._states[part] = self.open(self.space(part), part)
        return state

    def space(self, part: int) -> Space:
        return self._spaces(self.name, part)

    def forget(self) -> None:
        """Let go of the states; the next batch opens them again."""
        self._states.clear()
