"""How the messages of a vertex's in-edges become one value."""

from d3gnn.kernel.aggregators.base import Aggregator, aggregator, aggregators
from d3gnn.kernel.aggregators.mean import Mean
from d3gnn.kernel.aggregators.sum import Sum

__all__ = ["Aggregator", "Mean", "Sum", "aggregator", "aggregators"]
