"""The event format: creates, updates and deletes of vertices, edges, features and labels; and queries."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from d3gnn.events.batch import DEFAULT_FEATURE, NO_TIME, Element, Event, EventBatch, Op
from d3gnn.events.check import Reason, check, feature_index, order
from d3gnn.events.keys import IntKeys, Key, Keys, StringKeys, concat_keys, keys_from_arrow, keys_of
from d3gnn.events.schema import EdgeMode, GraphSchema
from d3gnn.events.shorthand import (
    delete_edge,
    delete_feature,
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

__all__ = [
    "DEFAULT_FEATURE",
    "NO_TIME",
    "EdgeMode",
    "Element",
    "Event",
    "EventBatch",
    "GraphSchema",
    "IntKeys",
    "Key",
    "Keys",
    "Op",
    "Reason",
    "StringKeys",
    "check",
    "concat_keys",
    "delete_edge",
    "delete_feature",
    "delete_vertex",
    "edge",
    "edge_feature",
    "feature",
    "feature_index",
    "from_edges",
    "from_queries",
    "keys_from_arrow",
    "keys_of",
    "label",
    "order",
    "query",
    "validate",
    "vertex",
]


def __getattr__(name: str) -> Any:
    # Events as DataFrames need Spark, which events themselves do not.
    if name in ("from_edges", "from_queries", "validate"):
        return getattr(import_module("d3gnn.spark.frames"), name)
    raise AttributeError(f"module 'd3gnn.events' has no attribute {name!r}")
