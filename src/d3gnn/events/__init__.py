"""The event format: creates, updates and deletes of vertices, edges, features and labels; and queries.

Write events with the functions of this module (`edge`, `feature`, `delete_vertex`, ...), as columns
(`EventBatch`), as Arrow tables, or as Spark DataFrames (`from_edges`, `from_features`, `from_labels`,
`from_queries`). See docs/events.md.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from d3gnn.events.batch import EventBatch
from d3gnn.events.check import Reason
from d3gnn.events.event import Element, Event, Op
from d3gnn.events.keys import Key
from d3gnn.events.schema import EdgeMode, GraphSchema
from d3gnn.events.shorthand import (
    delete_edge,
    delete_edge_feature,
    delete_feature,
    delete_label,
    delete_vertex,
    edge,
    edge_feature,
    feature,
    label,
    query,
    vertex,
)

if TYPE_CHECKING:
    from d3gnn.spark.frames import from_edges, from_queries, validate
    from d3gnn.spark.frames_features import from_deletes, from_features, from_labels

__all__ = [
    "EdgeMode",
    "Element",
    "Event",
    "EventBatch",
    "GraphSchema",
    "Key",
    "Op",
    "Reason",
    "delete_edge",
    "delete_edge_feature",
    "delete_feature",
    "delete_label",
    "delete_vertex",
    "edge",
    "edge_feature",
    "feature",
    "from_deletes",
    "from_edges",
    "from_features",
    "from_labels",
    "from_queries",
    "label",
    "query",
    "validate",
    "vertex",
]

#: These need Spark; the rest of the package does not.
_ON_SPARK = {
    "from_deletes": "d3gnn.spark.frames_features",
    "from_edges": "d3gnn.spark.frames",
    "from_features": "d3gnn.spark.frames_features",
    "from_labels": "d3gnn.spark.frames_features",
    "from_queries": "d3gnn.spark.frames",
    "validate": "d3gnn.spark.frames",
}


def __getattr__(name: str) -> Any:
    if name in _ON_SPARK:
        return getattr(import_module(_ON_SPARK[name]), name)
    raise AttributeError(f"module 'd3gnn.events' has no attribute {name!r}")
