"""As long as changes keep coming at the pace that is usual for the vertex."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

from d3gnn.kernel.windows.base import Window, check_seconds, microseconds
from d3gnn.kernel.windows.session import PATIENCE


@dataclass(frozen=True)
class AdaptiveSession(Window):
    r"""A session window whose gap is, for each vertex, `patience` times its usual time between two changes.

    How often a vertex changes is the exponential mean of how often it did in each `period` (in seconds); the
    last one counts `weight`, all earlier ones the rest:

    .. math:: r \leftarrow w\, c + (1 - w)\, r, \quad \text{gap} = \text{patience} \cdot \text{period} / r

    The gap lies between `shortest` and `widest`. Rates are kept for all vertices of a part together, in a
    count-min sketch of fixed size: vertices that share all of their places in it are taken to be busier.
    """

    shortest: float = 0.02
    widest: float = 1.0
    patience: float = 2.0
    period: float = 1.0
    weight: float = 0.3
    max_delay: float | None = None
    name = "adaptive"
    code = 3

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
                "the shortest gap is at most as long as the widest, please"
            )
        weight: Any = self.weight
        if not isinstance(weight, Real) or not 0 < float(weight) <= 1:
            raise ValueError(f"AdaptiveSession(weight={weight!r}): above 0 and at most 1, please")

    @property
    def numbers(self) -> tuple[float, ...]:
        return (
            microseconds(self.shortest),
            microseconds(self.widest),
            microseconds(self.patience * self.period),
            microseconds(self.period),
        )

    @property
    def longest(self) -> float:
        return PATIENCE * self.widest if self.max_delay is None else self.max_delay
