"""A fixed time from the first change on."""

from __future__ import annotations

from dataclasses import dataclass

from d3gnn.kernel.windows.base import Window, check_seconds, microseconds


@dataclass(frozen=True)
class Tumbling(Window):
    """What changes at a vertex is sent `interval` seconds after the first change."""

    interval: float
    name = "tumbling"
    code = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_seconds("Tumbling", interval=self.interval)

    @property
    def numbers(self) -> tuple[float, ...]:
        return (microseconds(self.interval),)

    @property
    def longest(self) -> float:
        return self.interval
