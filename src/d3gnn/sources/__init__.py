"""Where graphs and streams come from."""

from d3gnn.sources.edge_list import EdgeList, EdgeListError, read_edge_list
from d3gnn.sources.synthetic import SyntheticStream, rebatch

__all__ = ["EdgeList", "EdgeListError", "SyntheticStream", "read_edge_list", "rebatch"]
