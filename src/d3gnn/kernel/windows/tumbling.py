"""Tumbling windows: a fixed time from the first change on."""

from __future__ import annotations

from dataclasses import dataclass

from d3gnn.kernel.compiled import inlined
from d3gnn.kernel.windows.base import Window, check_seconds, microseconds
from d3gnn.types import Doubles, Ints32


@inlined
def due_after_pause(vertex: int, touches: int, total: int, now: int, numbers: Doubles, sketch: Ints32) -> int:
    """A fixed time after this change. Where the longest wait is as long, the first change decides."""
    return now + int(numbers[0])


@dataclass(frozen=True)
class Tumbling(Window):
    """A changed vertex is sent `interval` seconds after its first change."""

    interval: float
    name = "tumbling"
    due_at = staticmethod(due_after_pause)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_seconds("Tumbling", interval=self.interval)

    @property
    def numbers(self) -> tuple[float, ...]:
        return (microseconds(self.interval),)

    @property
    def longest(self) -> float:
        return self.interval
