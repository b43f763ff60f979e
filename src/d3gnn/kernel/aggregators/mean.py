"""Mean."""

from d3gnn.kernel.aggregators.base import MEAN
from d3gnn.kernel.aggregators.linear import Linear


class Mean(Linear):
    r"""The mean of the messages: :math:`a_v = \frac{1}{n_v} \sum_u m_u`; 0 where there are none."""

    name = "mean"
    code = MEAN
