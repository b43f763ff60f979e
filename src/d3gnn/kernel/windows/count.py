"""Count windows: a number of changes."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Any

from d3gnn.kernel.compiled import inlined
from d3gnn.kernel.touched import NEVER
from d3gnn.kernel.windows.base import Window, check_seconds
from d3gnn.types import Doubles, Ints32

#: The largest `n`: still counted exactly in a float64.
_MOST = 10**15


@inlined
def _due_at_count(vertex: int, touches: int, total: int, now: int, numbers: Doubles, sketch: Ints32) -> int:
    return now if total >= numbers[0] else NEVER // 2


@dataclass(frozen=True)
class Count(Window):
    """A changed vertex is sent with its `n`th change, or `max_delay` seconds after the first.

    At an Edge operator every message along an edge is a change, at a Vertex operator every partial aggregate.
    """

    n: int
    max_delay: float = 10.0
    name = "count"
    due_at = staticmethod(_due_at_count)

    def __post_init__(self) -> None:
        super().__post_init__()
        number: Any = self.n
        if not isinstance(number, Integral) or not 1 <= int(number) <= _MOST:
            raise ValueError(f"Count(n={self.n!r}): must be an integer from 1 to {_MOST:,}")
        check_seconds("Count", max_delay=self.max_delay)

    @property
    def numbers(self) -> tuple[float, ...]:
        return (float(self.n),)

    @property
    def longest(self) -> float:
        return self.max_delay
