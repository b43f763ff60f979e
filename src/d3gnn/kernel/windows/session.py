"""As long as changes keep coming."""

from __future__ import annotations

from dataclasses import dataclass

from d3gnn.kernel.windows.base import Window, check_seconds, microseconds

#: How many gaps anything waits at most, unless said otherwise.
PATIENCE = 10


@dataclass(frozen=True)
class Session(Window):
    """What changes at a vertex is sent when nothing more has changed there for `gap` seconds.

    Every change postpones it, but not beyond `max_delay` seconds after the first: ten gaps, unless given.
    """

    gap: float
    max_delay: float | None = None
    name = "session"
    code = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        check_seconds("Session", gap=self.gap)
        if self.max_delay is not None:
            check_seconds("Session", max_delay=self.max_delay)

    @property
    def numbers(self) -> tuple[float, ...]:
        return (microseconds(self.gap),)

    @property
    def longest(self) -> float:
        return PATIENCE * self.gap if self.max_delay is None else self.max_delay
