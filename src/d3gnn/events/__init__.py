"""The event format: creates, updates and deletes of vertices, edges, features and labels."""

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
    vertex,
)

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
    "keys_from_arrow",
    "keys_of",
    "label",
    "order",
    "vertex",
]
