"""The boxes of the dataflow, as plain objects."""

from d3gnn.kernel.operators.base import Operator, Spaces
from d3gnn.kernel.operators.chain import check_alerts, check_epsilon, check_head, make_operator, names_of
from d3gnn.kernel.operators.edge import Edge
from d3gnn.kernel.operators.partition import Partition
from d3gnn.kernel.operators.vertex import Vertex

__all__ = [
    "Edge",
    "Operator",
    "Partition",
    "Spaces",
    "Vertex",
    "check_alerts",
    "check_epsilon",
    "check_head",
    "make_operator",
    "names_of",
]
