"""Mean."""

from __future__ import annotations

from d3gnn.kernel.aggregators.linear import Linear
from d3gnn.kernel.compiled import inlined
from d3gnn.types import Doubles, Floats, Ints


@inlined
def divide_by_count(count: int, total: Doubles, params: Ints, aggregate: Floats) -> None:
    """The sum over the number of messages."""
    scale = 1.0 / count if count > 0 else 1.0
    for k in range(len(total)):
        aggregate[k] = total[k] * scale


class Mean(Linear):
    r"""The mean of the messages: :math:`a_v = \frac{1}{n_v} \sum_u m_u`; 0 where there are none."""

    name = "mean"
    finish = staticmethod(divide_by_count)
