"""Checks of events that need no graph, and the order in which events apply."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

import numpy as np

from d3gnn.events.batch import EventBatch
from d3gnn.events.event import DEFAULT_FEATURE, NO_TIME, Element, Op
from d3gnn.events.keys import Keys
from d3gnn.events.limits import LONGEST_ID, are_ahead, are_too_long
from d3gnn.events.schema import GraphSchema
from d3gnn.types import Array, Ints, Small

_Mark = Callable[[Array, "Reason"], None]


class Reason(IntEnum):
    """The result of an event. Values from NULL_ID on are reasons for a dead letter."""

    APPLIED = 0
    REPEATED = 1
    LATE = 2
    NULL_ID = 10
    NULL_TIME = 11
    UNKNOWN_OPERATION = 12
    UNKNOWN_ELEMENT = 13
    UNKNOWN_FEATURE = 14
    MISSING_VALUE = 15
    WRONG_WIDTH = 16
    NOT_FINITE = 17
    MISSING_KEY = 18
    UNEXPECTED_KEY = 19
    WRONG_ID_TYPE = 20
    APPEND_ONLY = 21
    NO_SUCH_VERTEX = 22
    NO_SUCH_EDGE = 23
    UNEXPECTED_VALUE = 24
    NO_ANSWER = 25
    WRONG_TTL = 40
    ID_TOO_LONG = 30
    TOO_FAR_AHEAD = 31
    TOO_LARGE = 32

    @property
    def is_dead(self) -> bool:
        return self >= Reason.NULL_ID

    @property
    def text(self) -> str:
        """The reason as text, as in the column `reason` of dead letters."""
        return _TEXT[self]


_TEXT = {
    Reason.APPLIED: "applied",
    Reason.REPEATED: "a repeat: nothing to change",
    Reason.LATE: "late: a newer value or delete was applied before, or what it creates would have expired",
    Reason.NULL_ID: "the id of the vertex, or of one end of the edge, is null (or beyond 64 bits)",
    Reason.NULL_TIME: "the event time is null",
    Reason.UNKNOWN_OPERATION: "the operation is not create, update or delete (of a query: not create)",
    Reason.UNKNOWN_ELEMENT: "the element is not vertex, edge, feature, edge_feature, label or query",
    Reason.UNKNOWN_FEATURE: "the schema declares no feature of this name",
    Reason.MISSING_VALUE: "the value is missing",
    Reason.WRONG_WIDTH: "the value has another width than the schema declares",
    Reason.NOT_FINITE: "the value contains NaN or infinity (or is too large for float32)",
    Reason.MISSING_KEY: "the edge has no key, but the schema is edges='keyed'",
    Reason.UNEXPECTED_KEY: "the edge has a key, but the schema is not edges='keyed'",
    Reason.WRONG_ID_TYPE: "the id has another type (integer or string) than the other ids of this graph",
    Reason.APPEND_ONLY: "the schema is edges='append': edges cannot be deleted or updated",
    Reason.NO_SUCH_VERTEX: "the vertex does not exist",
    Reason.NO_SUCH_EDGE: "the edge does not exist",
    Reason.UNEXPECTED_VALUE: "a delete or a query must not have a value",
    Reason.NO_ANSWER: "a query, but the model has no pair head (LinkPredictor, Similarity)",
    Reason.WRONG_TTL: "the ttl is not above 0, creates no edge or vertex, or the schema has none for these",
    Reason.ID_TOO_LONG: f"an id or edge key is longer than {LONGEST_ID:,} bytes",
    Reason.TOO_FAR_AHEAD: "the event time is too far ahead of the arrival (is its unit right? see max_ahead)",
    Reason.TOO_LARGE: "the value contains a number beyond the max_abs of the schema",
}


def check(batch: EventBatch, schema: GraphSchema, arrival: Ints | None = None) -> Small:
    """The reason why each event is bad, as far as that can be decided without the graph; 0: it is good.

    `arrival` is that of each event, if it is known better than from the batch.

    >>> from d3gnn.events import Event, EventBatch, GraphSchema
    >>> batch = EventBatch.of([Event("create", "edge", 1, None), Event("destroy", "vertex", 1)])
    >>> [Reason(r).name for r in check(batch, GraphSchema())]
    ['NULL_ID', 'UNKNOWN_OPERATION']
    """
    reason = np.zeros(len(batch), np.int8)
    op, element = batch.op, batch.element

    def mark(bad: Array, why: Reason) -> None:
        reason[bad & (reason == 0)] = why

    _mark_names(batch, mark)
    is_edge = (element == Element.EDGE) | (element == Element.EDGE_FEATURE)
    is_pair = is_edge | (element == Element.QUERY)
    mark(_is_null(batch.src), Reason.NULL_ID)
    if is_pair.any():
        mark(is_pair if batch.dst is None else is_pair & _is_null(batch.dst), Reason.NULL_ID)
    if is_edge.any():
        if schema.edges == "keyed":
            mark(is_edge if batch.key is None else is_edge & _is_null(batch.key), Reason.MISSING_KEY)
        elif batch.key is not None:
            mark(is_edge & ~_is_null(batch.key), Reason.UNEXPECTED_KEY)
        if schema.edges == "append":
            mark(is_edge & ((op != Op.CREATE) | (element == Element.EDGE_FEATURE)), Reason.APPEND_ONLY)
    _mark_values(batch, schema, mark)
    if batch.ttl is not None:
        _mark_ttl(batch, schema, batch.ttl, mark)
    for keys, used in ((batch.src, True), (batch.dst, is_pair), (batch.key, is_edge)):
        if (long := are_too_long(keys)) is not None:
            mark(long & used, Reason.ID_TOO_LONG)
    arrival = batch.arrival if arrival is None else arrival
    if arrival is not None:
        mark(are_ahead(batch.time, arrival, schema.longest_ahead), Reason.TOO_FAR_AHEAD)
    if schema.max_abs is not None and batch.values is not None:
        mark(_any_number(batch, np.abs(batch.values) > schema.max_abs), Reason.TOO_LARGE)
    return reason


def feature_index(batch: EventBatch, schema: GraphSchema) -> Small:
    """Which declared feature each event is about (those of vertices and of edges count apart); -1: none."""
    index = np.full(len(batch), -1, np.int8)
    for declared, elements in (
        (list(schema.features), (Element.VERTEX, Element.FEATURE)),
        (list(schema.edge_features), (Element.EDGE, Element.EDGE_FEATURE)),
    ):
        position = {name: i for i, name in enumerate(declared)}
        default = position.get(DEFAULT_FEATURE, 0 if len(declared) == 1 else -1)
        rows = np.isin(batch.element, elements)
        if batch.feature is None:
            index[rows] = default
        else:
            lookup = np.array([position.get(name, -1) for name in batch.names] + [default], np.int8)
            index[rows] = lookup[batch.feature[rows]]
    index[batch.element == Element.LABEL] = 0
    return index


def order(batch: EventBatch) -> Ints | None:
    """The order in which events apply: by time, arrival, partition, offset, row. None: they are in order.

    >>> order(EventBatch.edges([1, 2], [3, 3], time=[20, 10])).tolist()
    [1, 0]
    """
    if len(batch) < 2:
        return None
    time, then = batch.time, [c for c in (batch.arrival, batch.partition, batch.offset) if c is not None]
    if then:
        return np.lexsort([*then[::-1], time]).astype(np.int64)
    return None if (time[1:] >= time[:-1]).all() else np.argsort(time, kind="stable")


def _mark_names(batch: EventBatch, mark: _Mark) -> None:
    unknown = (batch.op < 0) | (batch.op >= len(Op))
    mark(unknown | ((batch.element == Element.QUERY) & (batch.op != Op.CREATE)), Reason.UNKNOWN_OPERATION)
    mark((batch.element < 0) | (batch.element >= len(Element)), Reason.UNKNOWN_ELEMENT)
    mark(batch.time == NO_TIME, Reason.NULL_TIME)


def _mark_values(batch: EventBatch, schema: GraphSchema, mark: _Mark) -> None:
    op, element = batch.op, batch.element
    about_values, takes_none = _about_values(element), (op == Op.DELETE) | (element == Element.QUERY)
    needs_value = about_values & (op != Op.DELETE)
    needs_value |= (element <= Element.EDGE) & (op == Op.UPDATE)
    if batch.values is None or batch.value_offsets is None:
        width = np.zeros(len(batch), np.int64)
    else:
        width = batch.value_offsets[1:] - batch.value_offsets[:-1]
    has_value = width > 0
    about_feature = (needs_value | has_value | about_values) & (element != Element.QUERY)
    index = feature_index(batch, schema)
    mark(about_feature & (index < 0), Reason.UNKNOWN_FEATURE)
    mark(needs_value & ~has_value, Reason.MISSING_VALUE)
    mark(has_value & takes_none, Reason.UNEXPECTED_VALUE)
    if batch.values is None or batch.value_offsets is None or not has_value.any():
        return
    # The last row and column, which -1 names as well, stand for what is unknown and marked already.
    most = max(len(schema.features), len(schema.edge_features), 1)
    widths = np.zeros((len(Element) + 1, most + 1), np.int64)
    for e in (Element.VERTEX, Element.FEATURE):
        widths[e, : len(schema.features)] = list(schema.features.values())
    for e in (Element.EDGE, Element.EDGE_FEATURE):
        widths[e, : len(schema.edge_features)] = list(schema.edge_features.values())
    widths[Element.LABEL, 0] = schema.label_width
    mark(has_value & (width != widths[np.minimum(element, len(Element)), index]), Reason.WRONG_WIDTH)
    mark(_any_number(batch, ~np.isfinite(batch.values)), Reason.NOT_FINITE)


def _any_number(batch: EventBatch, bad: Array) -> Array:
    """Which events have a bad number in their value, by which of all numbers are."""
    assert batch.value_offsets is not None
    before = np.concatenate([[0], np.cumsum(bad)])
    found: Array = before[batch.value_offsets[1:]] > before[batch.value_offsets[:-1]]
    return found


def _mark_ttl(batch: EventBatch, schema: GraphSchema, ttl: Ints, mark: _Mark) -> None:
    """A ttl belongs to the create of an edge or a vertex, and, as 0, to a delete that expiry made."""
    expires = np.zeros(len(Element) + 1, np.bool_)  # the last one: unknown elements
    expires[Element.EDGE], expires[Element.VERTEX] = schema.ttl is not None, schema.vertex_ttl is not None
    fits = expires[np.minimum(batch.element, len(Element))]
    fits &= ((batch.op == Op.CREATE) & (ttl > 0)) | ((batch.op == Op.DELETE) & (ttl == 0))
    mark((ttl != NO_TIME) & ~fits, Reason.WRONG_TTL)


def _about_values(element: Small) -> Array:
    """Which elements are values: features and labels."""
    return (element >= Element.FEATURE) & (element <= Element.LABEL)


def _is_null(keys: Keys) -> Array:
    return np.zeros(len(keys), np.bool_) if keys.valid is None else ~keys.valid
