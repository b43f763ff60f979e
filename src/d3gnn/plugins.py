"""What a new aggregator, partitioner or window is built from; see docs/plugins.md."""

from d3gnn.kernel.adjacency import Side
from d3gnn.kernel.aggregators import Aggregator, EdgeArrays, Messages, Recomputing
from d3gnn.kernel.compiled import inlined, lean
from d3gnn.kernel.partitioners import Partitioner, Placement
from d3gnn.kernel.touched import touch
from d3gnn.windows import Window

__all__ = [
    "Aggregator",
    "EdgeArrays",
    "Messages",
    "Partitioner",
    "Placement",
    "Recomputing",
    "Side",
    "Window",
    "inlined",
    "lean",
    "touch",
]
