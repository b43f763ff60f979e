"""Session windows: as long as changes keep coming."""

from __future__ import annotations

from dataclasses import dataclass

from d3gnn.kernel.windows.base import Window, check_seconds, microseconds
from d3gnn.kernel.windows.tumbling import due_after_pause

#: The longest wait, in gaps, unless `max_delay` is set.
PATIENCE = 10


@dataclass(frozen=True)
class Session(Window):
    """A changed vertex is sent when it has not changed again for `gap` seconds.

    Every change postpones the deadline, up to `max_delay` seconds after the first change (default: ten gaps).
    """

    gap: float
    max_delay: float | None = None
    name = "session"
    due_at = staticmethod(due_after_pause)

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
