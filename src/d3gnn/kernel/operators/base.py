"""What the operators have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from d3gnn.kernel.arrays import Space
from d3gnn.kernel.blocks import Block

#: Makes or opens the space of (operator, part).
Spaces = Callable[[str, int], Space]
State = TypeVar("State")


class Operator(ABC, Generic[State]):
    """One box of the dataflow: takes the blocks of a batch for one part, gives the blocks that it sends on.

    Everything a part remembers is in its space, so an operator object can be made anew at any time and go on.
    """

    name: str

    def __init__(self, spaces: Spaces) -> None:
        self._spaces = spaces
        self._states: dict[int, State] = {}
        #: What was done, since the operator was made: messages, touched vertices and the like.
        self.metrics: Counter[str] = Counter()

    @abstractmethod
    def open(self, space: Space, part: int) -> State:
        """The state of a part, in its space."""

    @abstractmethod
    def process(self, part: int, blocks: Iterable[Block]) -> list[Block]:
        """Take in the blocks that a batch has for this part; the blocks to send on."""

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
