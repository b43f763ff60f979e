"""Checks of single events, names of features, and the order of events."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from d3gnn.events import (
    Event,
    EventBatch,
    GraphSchema,
    Reason,
    delete_edge,
    delete_feature,
    delete_vertex,
    edge,
    edge_feature,
    feature,
    label,
    vertex,
)
from d3gnn.events.check import check, feature_index, order
from d3gnn.events.keys import keys_of

SCHEMA = GraphSchema(features={"x": 2, "y": 1}, edge_features={"w": 1}, label_width=2)
KEYED = GraphSchema("keyed")
APPEND = GraphSchema("append", features={"x": 2})
GOOD = vertex(1)


def reasons(schema: GraphSchema, *events: Event) -> list[Reason]:
    return [Reason(r) for r in check(EventBatch.of(events), schema)]


@pytest.mark.parametrize(
    "event",
    [
        vertex(1),
        vertex(1, [1, 2]),
        vertex(1, [1], name="y"),
        vertex(1, name="ignored without a value"),
        Event("update", "vertex", 1, value=[1, 2]),
        delete_vertex(1),
        feature(1, [1, 2]),
        delete_feature(1),
        delete_feature(1, name="y"),
        edge(1, 2),
        edge(1, 2, [1]),
        Event("update", "edge", 1, 2, value=[1]),
        delete_edge(1, 2),
        edge_feature(1, 2, [1], name="w"),
        Event("delete", "edge_feature", 1, 2),
        label(1, [1, 2]),
        Event("delete", "label", 1),
        vertex(1, time=-5),
        Event("create", "vertex", 1, key=5),
    ],
    ids=repr,
)
def test_good_events(event: Event) -> None:
    assert reasons(SCHEMA, GOOD, event, GOOD) == [Reason.APPLIED] * 3


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (Event("create", "vertex", None), Reason.NULL_ID),
        (Event("create", "edge", None, 2), Reason.NULL_ID),
        (Event("create", "edge", 1, None), Reason.NULL_ID),
        (Event("delete", "edge_feature", 1, None), Reason.NULL_ID),
        (Event("create", "vertex", 2**70), Reason.NULL_ID),
        (edge(1, 2)._replace(time=None), Reason.NULL_TIME),
        (Event("destroy", "vertex", 1), Reason.UNKNOWN_OPERATION),
        (Event("", "vertex", 1), Reason.UNKNOWN_OPERATION),
        (Event("create", "hyperedge", 1), Reason.UNKNOWN_ELEMENT),
        (Event("create", "hyperedge", 1, value=[1.0]), Reason.UNKNOWN_ELEMENT),
        (feature(1, [1, 2], name="w"), Reason.UNKNOWN_FEATURE),
        (vertex(1, [1], name="nope"), Reason.UNKNOWN_FEATURE),
        (delete_feature(1, name="nope"), Reason.UNKNOWN_FEATURE),
        (edge(1, 2, [1], name="x"), Reason.UNKNOWN_FEATURE),
        (Event("update", "vertex", 1), Reason.MISSING_VALUE),
        (Event("update", "edge", 1, 2), Reason.MISSING_VALUE),
        (Event("create", "feature", 1), Reason.MISSING_VALUE),
        (Event("create", "feature", 1, value=[]), Reason.MISSING_VALUE),
        (Event("update", "edge_feature", 1, 2), Reason.MISSING_VALUE),
        (Event("create", "label", 1), Reason.MISSING_VALUE),
        (feature(1, [1]), Reason.WRONG_WIDTH),
        (feature(1, [1, 2], name="y"), Reason.WRONG_WIDTH),
        (edge(1, 2, [1, 2]), Reason.WRONG_WIDTH),
        (label(1, 3), Reason.WRONG_WIDTH),
        (feature(1, [float("nan"), 1]), Reason.NOT_FINITE),
        (feature(1, [1, -float("inf")]), Reason.NOT_FINITE),
        (feature(1, [1, 1e39]), Reason.NOT_FINITE),
        (feature(1, [1, None]), Reason.NOT_FINITE),  # type: ignore[list-item]
        (label(1, [float("nan"), 1]), Reason.NOT_FINITE),
        (edge(1, 2, key=0), Reason.UNEXPECTED_KEY),
        (Event("delete", "vertex", 1, value=[1, 2]), Reason.UNEXPECTED_VALUE),
        (Event("delete", "feature", 1, value=[1, 2]), Reason.UNEXPECTED_VALUE),
        (Event("delete", "edge", 1, 2, value=[1]), Reason.UNEXPECTED_VALUE),
    ],
    ids=repr,
)
def test_bad_events_between_good_ones(event: Event, reason: Reason) -> None:
    assert reasons(SCHEMA, GOOD, event, GOOD) == [Reason.APPLIED, reason, Reason.APPLIED]
    # Alone, so that whole columns are absent.
    assert reasons(SCHEMA, event) == [reason]


def test_keyed_edges_need_a_key() -> None:
    events = [edge(1, 2, key=0), edge(1, 2), delete_edge(1, 2), vertex(1)]
    expected = [Reason.APPLIED, Reason.MISSING_KEY, Reason.MISSING_KEY, Reason.APPLIED]
    assert reasons(KEYED, *events) == expected
    assert reasons(KEYED, *events[1:]) == expected[1:]


def test_append_only_edges_are_only_created() -> None:
    events = [
        edge(1, 2),
        delete_edge(1, 2),
        Event("update", "edge", 1, 2, value=[1]),
        edge_feature(1, 2, [1]),
    ]
    assert reasons(APPEND, *events) == [Reason.APPLIED, *[Reason.APPEND_ONLY] * 3]
    assert reasons(APPEND, edge(1, 2, [1]), delete_vertex(1)) == [Reason.UNKNOWN_FEATURE, Reason.APPLIED]


def test_numbers_that_name_no_operation_or_element() -> None:
    batch = EventBatch(
        op=np.array([3, 0], np.int8),
        element=np.array([0, 9], np.int8),
        src=keys_of([1, 2]),
        time=np.zeros(2, np.int64),
        values=np.ones(2, np.float32),
        value_offsets=np.array([0, 1, 2]),
    )
    assert check(batch, SCHEMA).tolist() == [Reason.UNKNOWN_OPERATION, Reason.UNKNOWN_ELEMENT]


def test_nothing_to_check() -> None:
    assert check(EventBatch.of([]), SCHEMA).tolist() == []


def test_every_reason_has_a_text_and_only_bad_ones_are_dead() -> None:
    assert all(reason.text for reason in Reason)
    assert {r for r in Reason if not r.is_dead} == {Reason.APPLIED, Reason.REPEATED, Reason.LATE}


class TestFeatureIndex:
    def test_counts_vertices_and_edges_apart(self) -> None:
        events = [feature(1, [1], name="y"), feature(1, [1], name="x"), edge_feature(1, 2, [1], name="w")]
        assert feature_index(EventBatch.of(events), SCHEMA).tolist() == [1, 0, 0]

    def test_no_name_is_x_or_the_only_one(self) -> None:
        batch = EventBatch.of([feature(1, [1]), edge_feature(1, 2, [1]), label(1, 1)])
        assert feature_index(batch, SCHEMA).tolist() == [0, 0, 0]
        two = GraphSchema(features={"a": 1, "b": 1}, edge_features={"b": 1, "x": 1})
        assert feature_index(batch, two).tolist() == [-1, 1, 0]
        assert feature_index(batch, GraphSchema(features={"a": 1})).tolist() == [0, -1, 0]

    def test_a_batch_may_hold_more_names_than_a_byte_has_numbers(self) -> None:
        batch = EventBatch.of(
            [feature(i, [1], name=f"f{i}") for i in range(300)] + [feature(1, [1], name="y")]
        )
        assert feature_index(batch, SCHEMA).tolist() == [-1] * 300 + [1]


class TestOrder:
    def test_nothing_to_do(self) -> None:
        assert order(EventBatch.of([])) is None
        assert order(EventBatch.edges([1], [2], time=[5], arrival=[1])) is None
        assert order(EventBatch.edges([1, 2, 3], [1, 2, 3], time=[1, 1, 2])) is None

    @pytest.mark.parametrize("columns", [{}, {"arrival": 1}])
    def test_equal_events_keep_their_rows(self, columns: dict[str, Any]) -> None:
        events = [vertex(i, time=-(i // 50))._replace(**columns) for i in range(100)]
        positions = order(EventBatch.of(events))
        assert positions is not None
        assert positions.tolist() == [*range(50, 100), *range(50)]

    def test_time_then_arrival_then_partition_then_offset_then_row(self) -> None:
        ranks = [(2, 0, 0, 0), (1, 2, 0, 0), (1, 1, 2, 0), (1, 1, 1, 2), (1, 1, 1, 1), (1, 1, 1, 1)]
        events = [
            Event("create", "vertex", 1, time=t, arrival=a, partition=p, offset=o) for t, a, p, o in ranks
        ]
        positions = order(EventBatch.of(events))
        assert positions is not None
        assert positions.tolist() == [4, 5, 3, 2, 1, 0]

    def test_nulls_sort_first(self) -> None:
        positions = order(EventBatch.of([vertex(1)._replace(arrival=-3), vertex(2)]))
        assert positions is not None
        assert positions.tolist() == [1, 0]
