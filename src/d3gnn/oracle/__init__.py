"""Recomputation from scratch: the graph after some events, and its embeddings.

Every incremental result is tested against it.
"""

from d3gnn.oracle.graph import Oracle
from d3gnn.oracle.recompute import embeddings, forward, relative_error

__all__ = ["Oracle", "embeddings", "forward", "relative_error"]
