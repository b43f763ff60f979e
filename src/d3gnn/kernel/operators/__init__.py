"""The boxes of the dataflow, as plain objects."""

from d3gnn.kernel.operators.base import PARTITION, BatchContext, OpenState, Operator, OperatorId
from d3gnn.kernel.operators.chain import ChainSpec, build_operator
from d3gnn.kernel.operators.config import Emit, OperatorConfig
from d3gnn.kernel.operators.edge import Edge
from d3gnn.kernel.operators.partition import Partition
from d3gnn.kernel.operators.vertex import Vertex

__all__ = [
    "PARTITION",
    "BatchContext",
    "ChainSpec",
    "Edge",
    "Emit",
    "OpenState",
    "Operator",
    "OperatorConfig",
    "OperatorId",
    "Partition",
    "Vertex",
    "build_operator",
]
