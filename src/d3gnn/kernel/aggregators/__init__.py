"""Aggregators: how the messages along the in-edges of a vertex become one value. One file each."""

from d3gnn.kernel.aggregators.attention import Attention
from d3gnn.kernel.aggregators.base import Aggregator, EdgeArrays, Messages, aggregator_type, aggregator_types
from d3gnn.kernel.aggregators.degrees import Degrees
from d3gnn.kernel.aggregators.extremes import Max, Min
from d3gnn.kernel.aggregators.mean import Mean
from d3gnn.kernel.aggregators.mixed import Mixed
from d3gnn.kernel.aggregators.per_edge import PerEdge
from d3gnn.kernel.aggregators.recomputing import Recomputing
from d3gnn.kernel.aggregators.sum import Sum
from d3gnn.nn.layer import Layer

__all__ = [
    "Aggregator",
    "Attention",
    "Degrees",
    "EdgeArrays",
    "Max",
    "Mean",
    "Messages",
    "Min",
    "Mixed",
    "PerEdge",
    "Recomputing",
    "Sum",
    "aggregator_of",
    "aggregator_types",
]


def aggregator_of(layer: Layer) -> Aggregator:
    """The aggregator of a layer's messages.

    >>> from d3gnn.nn import SAGEConv
    >>> aggregator_of(SAGEConv(8, 8, "mean,max")).state_width(8)
    16
    """
    names = layer.aggr.split(",")
    if layer.makes_edge_messages:
        return PerEdge(layer)
    return Mixed(*names) if len(names) > 1 else aggregator_type(names[0]).of(layer)
