"""Sum."""

from d3gnn.kernel.aggregators.linear import Linear


class Sum(Linear):
    r"""The sum of the messages: :math:`a_v = \sum_u m_u`; 0 where there are none."""

    name = "sum"
