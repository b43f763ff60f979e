"""Where graphs and streams come from."""

from d3gnn.sources.edge_list import EdgeList, EdgeListError, read_edge_list

__all__ = ["EdgeList", "EdgeListError", "read_edge_list"]
