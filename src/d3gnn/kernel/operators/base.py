"""What the operators have in common: identity, state per part, and the batch protocol."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from time import perf_counter_ns
from typing import Generic, Literal, NamedTuple, TypeVar

import numpy as np

from d3gnn.kernel.blocks import Block
from d3gnn.kernel.part_state import PartState
from d3gnn.kernel.topology import Topology
from d3gnn.kernel.windows import Window
from d3gnn.kernel.windows.pending import Pending
from d3gnn.types import Bytes, Ints

Role = Literal["partition", "adjacency", "adjacency-without-loops", "edge", "vertex"]
_OF_LAYERS = ("edge", "vertex")


class OperatorId(NamedTuple):
    """One operator of a chain, or an adjacency that several share; as text, its name in metrics and folders.

    >>> str(OperatorId("edge", 2)), str(PARTITION)
    ('edge-2', 'partition')
    """

    role: Role
    layer: int = 0

    def __str__(self) -> str:
        return f"{self.role}-{self.layer}" if self.role in _OF_LAYERS else self.role


PARTITION = OperatorId("partition")


#: Opens the state of (operator, part).
OpenState = Callable[[OperatorId, int], PartState]
State = TypeVar("State")
_NOTHING = np.zeros(0, np.uint8)


class BatchContext(NamedTuple):
    """What an operator must know of a batch beside its blocks."""

    #: The clock of the windows, in microseconds.
    now: int
    #: Whether nothing may stay pending.
    drain: bool = False
    #: Whether all state is rebuilt from the log: what was emitted before is then unknown.
    rebuild: bool = False


#: A batch in which nothing stays pending, whatever the window.
IMMEDIATE = BatchContext(0, drain=True)


class Operator(ABC, Generic[State]):
    """One operator of the dataflow: receives the blocks of a batch for one part, returns the blocks to send.

    All state of a part is in its `PartState`, so an operator object can be replaced by a new one at any time.
    A host calls `step` for every part that it runs, and then `flush` once.
    """

    #: Whether steps buffer blocks until `flush`.
    buffers = False
    #: Whether another operator follows, which needs the topology, too.
    passes_on = True

    def __init__(self, id: OperatorId, open_state: OpenState, window: Window | None = None) -> None:
        self.id, self._open_state, self.window = id, open_state, window
        self.name = str(id)
        self._states: dict[int, State] = {}
        #: Counts since the operator was made: messages, touched vertices and others.
        self.metrics: Counter[str] = Counter()

    @abstractmethod
    def open(self, part_state: PartState, part: int) -> State:
        """The operator's view of the state of a part."""

    @abstractmethod
    def step(self, part: int, topology: Topology, blocks: list[Block], context: BatchContext) -> list[Block]:
        """Apply a batch's topology and its other blocks to one part; returns the blocks to send, except those
        that are buffered until `flush`.
        """

    def flush(self, source: int = 0) -> list[Block]:
        """The blocks that the steps of one or more parts have buffered, as sent by part `source`."""
        return []

    def pending(self, part: int) -> Pending | None:
        """What is pending in the window of a part; None without a window."""
        return None

    def open_window(self, part_state: PartState) -> Pending | None:
        """The pending vertices in a state, if there is a window."""
        if self.window is None:
            return None
        return Pending(part_state, self.window)

    def hold(
        self,
        pending: Pending,
        touched: Ints,
        context: BatchContext,
        at_once: Bytes = _NOTHING,
        firsts: int = 0,
    ) -> int:
        """Replace the touched vertices by those that are due, and return how many these are. Vertices marked
        in `at_once` are never delayed; at least `firsts` of them were touched.
        """
        begun = perf_counter_ns()
        due = pending.hold(touched, context.now, context.drain, at_once, firsts)
        ended, metrics = perf_counter_ns(), self.metrics
        metrics["window_ns"] += ended - begun
        metrics["forwards"] += due
        return due

    def state(self, part: int) -> State:
        """The operator's view of the state of a part, opened at the first use."""
        state = self._states.get(part)
        if state is None:
            state = self._states[part] = self.open(self.part_state(part), part)
        return state

    def part_state(self, part: int) -> PartState:
        """The state of a part."""
        return self._open_state(self.id, part)

    def forget(self) -> None:
        """Drop the views of states; the next batch opens them again."""
        self._states.clear()
