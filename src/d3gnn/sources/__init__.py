"""Readers of edge lists, and synthetic streams."""

from d3gnn.sources.edge_list import EdgeList, EdgeListError, read_edge_list
from d3gnn.sources.rebatch import rebatch
from d3gnn.sources.synthetic import SyntheticStream

__all__ = ["EdgeList", "EdgeListError", "SyntheticStream", "read_edge_list", "rebatch"]
