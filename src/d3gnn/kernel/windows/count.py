"""A number of changes."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Any

from d3gnn.kernel.windows.base import Window, check_seconds

#: More changes than anybody waits for, and few enough to be counted exactly.
_MOST = 10**15


@dataclass(frozen=True)
class Count(Window):
    """What changes at a vertex is sent with its `n`th change, or `max_delay` seconds after the first.

    At an Edge operator every message along an edge is a change, at a Vertex operator every partial aggregate.
    """

    n: int
    max_delay: float = 10.0
    name = "count"
    code = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        number: Any = self.n
        if not isinstance(number, Integral) or not 1 <= int(number) <= _MOST:
            raise ValueError(f"Count(n={self.n!r}): a whole number of changes, 1 to {_MOST:,}, please")
        check_seconds("Count", max_delay=self.max_delay)

    @property
    def numbers(self) -> tuple[float, ...]:
        return (float(self.n),)

    @property
    def longest(self) -> float:
        return self.max_delay
