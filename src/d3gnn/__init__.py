"""Streaming graph neural networks: exact embeddings of a graph that keeps changing."""

from d3gnn import events, nn
from d3gnn.events import GraphSchema
from d3gnn.kernel.local import LocalEngine
from d3gnn.kernel.partitioners import HDRF, Random

__all__ = ["HDRF", "GraphSchema", "LocalEngine", "Random", "events", "nn"]
__version__ = "0.1.0"
