"""Compiled loops over a graph that does not change, with the gradients of each: what training runs on.

The kernel's aggregators change states by single messages; these loops compute whole matrices, forward and
backward. None of them makes a row per edge.
"""

from d3gnn.kernel.csr.edges import Csr, Edges, both_ways, transposed
from d3gnn.kernel.csr.in_parallel import over_rows

__all__ = ["Csr", "Edges", "both_ways", "over_rows", "transposed"]
