"""Max and min."""

from d3gnn.kernel.aggregators.mixed import Mixed


class Max(Mixed):
    r"""The largest of the messages, number by number: :math:`a_v = \max_u m_u`; 0 where there are none."""

    name = "max"


class Min(Mixed):
    r"""The smallest of the messages, number by number: :math:`a_v = \min_u m_u`; 0 where there are none."""

    name = "min"
