"""Adaptive session windows: as long as changes keep coming at the vertex's usual rate."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

from d3gnn.kernel.compiled import inlined
from d3gnn.kernel.windows.base import Window, check_seconds, microseconds
from d3gnn.kernel.windows.session import PATIENCE
from d3gnn.kernel.windows.sketch import count_and_rate, fading, fetch_places
from d3gnn.types import Doubles, Ints32


@inlined
def _due_at_rate(vertex: int, touches: int, total: int, now: int, numbers: Doubles, sketch: Ints32) -> int:
    rate = count_and_rate(sketch, vertex, touches, now // int(numbers[3]), numbers[4:])
    return now + int(min(max(numbers[2] / rate, numbers[0]), numbers[1]))


@dataclass(frozen=True)
class AdaptiveSession(Window):
    r"""A session window whose gap is, for each vertex, `patience` times its usual time between two changes.

    The rate of a vertex is the exponential mean of its changes in each `period` (in seconds); the last period
    has the given `weight`:

    .. math:: r \leftarrow w\, c + (1 - w)\, r, \quad \text{gap} = \text{patience} \cdot \text{period} / r

    The gap is bounded by `shortest` and `widest`. Rates are kept for all vertices of a part in one count-min
    sketch of fixed size, which overestimates the rates of vertices that collide in it.
    """

    shortest: float = 0.02
    widest: float = 1.0
    patience: float = 2.0
    period: float = 1.0
    weight: float = 0.3
    max_delay: float | None = None
    name = "adaptive"
    due_at = staticmethod(_due_at_rate)
    look_ahead = staticmethod(fetch_places)
    keeps_rates = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_seconds(
            "AdaptiveSession", shortest=self.shortest, widest=self.widest, patience=self.patience,
            period=self.period,
        )  # fmt: skip
        if self.max_delay is not None:
            check_seconds("AdaptiveSession", max_delay=self.max_delay)
        if self.shortest > self.widest:
            raise ValueError(
                f"AdaptiveSession(shortest={self.shortest}, widest={self.widest}): "
                "shortest must not be larger than widest"
            )
        weight: Any = self.weight
        if not isinstance(weight, Real) or not 0 < float(weight) <= 1:
            raise ValueError(f"AdaptiveSession(weight={weight!r}): must be above 0 and at most 1")

    @property
    def numbers(self) -> tuple[float, ...]:
        return (
            microseconds(self.shortest),
            microseconds(self.widest),
            microseconds(self.patience * self.period),
            microseconds(self.period),
            *fading(self.weight),
        )

    @property
    def longest(self) -> float:
        return PATIENCE * self.widest if self.max_delay is None else self.max_delay
