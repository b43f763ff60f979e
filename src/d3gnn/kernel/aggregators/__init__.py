"""How the messages of a vertex's in-edges become one value."""

from d3gnn.kernel.aggregators.attention import Attention
from d3gnn.kernel.aggregators.base import Aggregator, Arrays, Carried, aggregator_type, aggregator_types
from d3gnn.kernel.aggregators.degrees import Degrees
from d3gnn.kernel.aggregators.extremes import Max, Min
from d3gnn.kernel.aggregators.mean import Mean
from d3gnn.kernel.aggregators.mixed import Mixed
from d3gnn.kernel.aggregators.per_edge import PerEdge
from d3gnn.kernel.aggregators.sum import Sum
from d3gnn.nn.layer import Layer

__all__ = [
    "Aggregator",
    "Arrays",
    "Attention",
    "Carried",
    "Degrees",
    "Max",
    "Mean",
    "Min",
    "Mixed",
    "PerEdge",
    "Sum",
    "aggregator",
    "aggregator_of",
    "aggregator_types",
]


def aggregator(names: str) -> Aggregator:
    """The aggregator of this name; of several, with commas between, all of them side by side.

    >>> aggregator("mean,max").state_width(8)
    16
    """
    kinds = [aggregator_type(name) for name in names.split(",")]
    return kinds[0]() if len(kinds) == 1 else Mixed(*(kind.code for kind in kinds))


def aggregator_of(layer: Layer) -> Aggregator:
    """What joins the messages of a layer."""
    if layer.attention is not None:
        return Attention(layer.attention, layer.edge_width)
    if layer.makes_edge_messages:
        return PerEdge(layer, *(aggregator_type(name).code for name in layer.aggregator.split(",")))
    return aggregator(layer.aggregator)
