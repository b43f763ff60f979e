"""Layers and models: what a vertex sends, how messages are joined, how a vertex renews itself."""

from d3gnn.nn.layer import Layer
from d3gnn.nn.model import GNN
from d3gnn.nn.sage import SAGE, GraphSAGE

__all__ = ["GNN", "SAGE", "GraphSAGE", "Layer"]
