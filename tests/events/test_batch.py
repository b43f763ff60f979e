"""Events as columns: from rows and Arrow, and back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from d3gnn.events import (
    Element,
    Event,
    EventBatch,
    GraphSchema,
    Op,
    delete_edge,
    delete_feature,
    delete_vertex,
    edge,
    edge_feature,
    feature,
    label,
    vertex,
)
from d3gnn.events.check import check, order
from d3gnn.events.event import NO_TIME
from d3gnn.events.keys import IntKeys
from d3gnn.testing import event_batches

SCHEMA = GraphSchema(features={"x": 2, "y": 1}, edge_features={"w": 1})
EVENTS = [
    edge("a", "b", [0.5], time=3, name="w"),
    vertex("c", [1.0, 2.0], time=1),
    delete_edge("a", "b", time=9),
    feature("c", [4.0], time=2, name="y"),
    delete_feature("c", time=4),
    label("a", 1.0),
    delete_vertex("a", time=10),
    edge_feature("a", "b", [1.5], time=4),
    edge("a", "d", key="k"),
]


def test_shorthand() -> None:
    assert edge(1, 2, time=5) == Event("create", "edge", 1, 2, time=5)
    assert repr(edge("a", "b", [1.0], key=3, time=5, name="w")) == "create edge a -> b #3 w=[1.0] at 5"
    assert repr(delete_vertex(7)) == "delete vertex 7 at 0"
    assert label(1, np.float32(2)).value == [2.0]  # type: ignore[arg-type]
    assert label(1, [1.0, 2.0]).value == [1.0, 2.0]


class TestRows:
    def test_columns(self) -> None:
        batch = EventBatch.of(EVENTS)
        assert len(batch) == len(EVENTS)
        assert batch.src.to_list() == [e.src for e in EVENTS]
        assert batch.time.tolist() == [e.time for e in EVENTS]
        assert batch.names == ("w", "y")
        assert batch.arrival is batch.partition is batch.offset is None

    def test_rows_keep_their_original_form(self) -> None:
        strange = Event("destroy", "hyperedge", None, time=None, value=[float("inf")])
        batch = EventBatch.of([vertex(1), strange])
        assert batch.row(1) is strange
        assert (batch.op[1], batch.element[1], batch.time[1]) == (-1, -1, NO_TIME)

    def test_datetimes_are_microseconds(self) -> None:
        aware = datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))
        naive = datetime(2026, 1, 1, microsecond=1)
        old = datetime(1969, 12, 31, 23, 59, 59, 999_999)
        micros = [1_767_225_600_000_000, 1_767_225_600_000_001, -1]
        batch = EventBatch.of([edge(1, 2, time=time) for time in (aware, naive, old)])
        assert batch.time.tolist() == micros
        assert [batch.row(i).time for i in range(3)] == micros
        arrived = Event("create", "vertex", 1, time=5, arrival=naive)
        assert EventBatch.of([arrived]).row(0).arrival == micros[1]
        assert EventBatch.of([vertex(1), arrived]).arrival.tolist() == [NO_TIME, micros[1]]  # type: ignore[union-attr]
        for times in ([aware, naive, old], np.array([naive, naive, old], "datetime64[ns]")):
            edges = EventBatch.edges([1, 2, 3], [4, 5, 6], time=times)
            assert edges.time[1:].tolist() == micros[1:]
        table = pa.table({"src": [1, 1, 1], "time": pa.array([naive, naive, old])})
        assert EventBatch.from_arrow(table).time.tolist() == [micros[1], micros[1], micros[2]]

    def test_no_events(self) -> None:
        batch = EventBatch.of([])
        assert len(batch) == 0
        assert len(EventBatch.from_arrow(batch.to_arrow())) == 0

    def test_a_batch_is_itself(self) -> None:
        batch = EventBatch.of(iter(EVENTS))
        assert EventBatch.of(batch) is batch

    def test_numbers_too_large_for_float32_become_infinity_without_a_warning(self) -> None:
        assert EventBatch.of([vertex(1, [1e300])]).values.tolist() == [float("inf")]  # type: ignore[union-attr]


class TestEdges:
    @pytest.mark.parametrize(
        "make",
        [list, np.array, pa.array, lambda ids: np.array(ids, np.int32), lambda ids: pa.chunked_array([ids])],
        ids=["list", "numpy", "arrow", "int32", "chunks"],
    )
    def test_take_ids_from_anything(self, make: Any) -> None:
        batch = EventBatch.edges(make([1, 2]), make([3, 4]), op=Op.DELETE)
        assert isinstance(batch.src, IntKeys)
        assert [batch.row(i) for i in range(2)] == [delete_edge(1, 3), delete_edge(2, 4)]

    def test_strings(self) -> None:
        assert EventBatch.edges(np.array(["a"]), ["b"], time=[4]).row(0) == edge("a", "b", time=4)

    @pytest.mark.parametrize("other", [{"dst": [1]}, {"time": [1]}, {"arrival": [1]}])
    def test_columns_of_unequal_length_are_refused(self, other: dict[str, Any]) -> None:
        name = next(iter(other))
        with pytest.raises(ValueError, match=f"2 events, but 1 in the column '{name}'"):
            EventBatch.edges(**({"src": [1, 2], "dst": [3, 4]} | other))


class TestArrow:
    def test_a_table_of_events_comes_back(self) -> None:
        batch = EventBatch.from_arrow(EventBatch.of(EVENTS).to_arrow())
        assert [batch.row(i) for i in range(len(batch))] == EVENTS

    @given(event_batches(SCHEMA, "str"))
    def test_checks_and_order_survive_arrow_and_take(self, batches: list[list[Event]]) -> None:
        for events in batches:
            batch = EventBatch.of(events)
            whole = np.arange(len(batch))
            for same in (EventBatch.from_arrow(batch.to_arrow()), batch.take(whole), batch.take(slice(None))):
                assert check(same, SCHEMA).tolist() == check(batch, SCHEMA).tolist()
                first, second = order(batch), order(same)
                assert (whole if first is None else first).tolist() == (
                    whole if second is None else second
                ).tolist()

    def test_without_op_and_element_rows_create_edges_or_vertices(self) -> None:
        edges = EventBatch.from_arrow(pa.table({"src": [1], "dst": [2]}))
        vertices = EventBatch.of(pa.RecordBatch.from_pydict({"src": ["a"]}))
        assert (edges.row(0), vertices.row(0)) == (edge(1, 2), vertex("a"))

    def test_a_null_end_makes_no_vertex_of_an_edge_even_in_a_batch_of_its_own(self) -> None:
        batch = EventBatch.from_arrow(pa.table({"src": [1], "dst": pa.array([None], pa.int64())}))
        assert batch.element.tolist() == [Element.EDGE]
        assert batch.row(0) == Event("create", "edge", 1, None)

    def test_a_table_without_src_is_refused(self) -> None:
        with pytest.raises(ValueError, match="need a column 'src'; these have a, b"):
            EventBatch.from_arrow(pa.table({"a": [1], "b": [2]}))

    @pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
    def test_timestamps_are_microseconds(self, unit: str) -> None:
        at = datetime(2020, 1, 1, tzinfo=UTC)
        times = pa.array([at, None], pa.timestamp(unit, "UTC"))
        batch = EventBatch.from_arrow(pa.table({"src": [1, 2], "time": times, "arrival": times}))
        expected = int(at.timestamp()) * 10**6
        assert batch.time.tolist() == [expected, NO_TIME]
        assert [batch.row(i).time for i in range(2)] == [expected, None]
        assert [batch.row(i).arrival for i in range(2)] == [expected, None]

    def test_nanoseconds_are_cut_off(self) -> None:
        times = pa.array([1999], pa.timestamp("ns"))
        assert EventBatch.from_arrow(pa.table({"src": [1], "time": times})).time.tolist() == [1]

    @pytest.mark.parametrize(
        "kind",
        [pa.list_(pa.float32()), pa.large_list(pa.float64()), pa.list_(pa.float32(), 2), pa.list_(pa.int8())],
    )
    def test_values_of_any_list_type(self, kind: pa.DataType) -> None:
        table = pa.table({"src": [0, 1, 2, 3], "value": pa.array([[9, 9], [1, 2], None, [3, 4]], kind)})
        batch = EventBatch.from_arrow(table.slice(1))
        assert batch.values is not None
        assert batch.value_offsets is not None
        assert (batch.values.tolist(), batch.value_offsets.tolist()) == ([1, 2, 3, 4], [0, 2, 2, 4])

    def test_nulls_in_a_value_are_not_numbers(self) -> None:
        batch = EventBatch.from_arrow(pa.table({"src": [1], "value": [[None, 1.0]]}))
        assert batch.values is not None
        assert np.isnan(batch.values[0])

    def test_values_that_are_no_lists_are_refused(self) -> None:
        with pytest.raises(TypeError, match="lists of numbers, not double"):
            EventBatch.from_arrow(pa.table({"src": [1], "value": [1.0]}))

    def test_unknown_names_and_nulls(self) -> None:
        table = pa.table(
            {
                "src": [1, 2, 3],
                "op": pa.chunked_array([["create"], ["destroy", None]]),
                "element": pa.array(["label", "hyperedge", None]).dictionary_encode(),
            }
        )
        batch = EventBatch.from_arrow(table)
        assert (batch.op.tolist(), batch.element.tolist()) == ([0, -1, Op.CREATE], [4, -1, Element.VERTEX])
        assert batch.row(1).op == "destroy"

    def test_events_without_a_value_have_none(self) -> None:
        assert EventBatch.of([edge(1, 2), vertex(1, [1.0])]).to_arrow()["value"].to_pylist() == [None, [1.0]]


class TestTake:
    def test_positions_masks_and_slices(self) -> None:
        batch = EventBatch.of(EVENTS)
        index = np.array([7, 0, 3])
        assert [batch.take(index).row(i) for i in range(3)] == [EVENTS[i] for i in index]
        mask = np.zeros(len(batch), np.bool_)
        mask[[1, 4]] = True
        assert [batch.take(mask).row(i) for i in range(2)] == [EVENTS[1], EVENTS[4]]
        assert batch.take(slice(2, 4)).row(1) == EVENTS[3]
        assert len(batch.take(np.zeros(0, np.int64))) == 0

    def test_order_columns_come_along(self) -> None:
        events = [vertex(i)._replace(arrival=i, partition=None, offset=-i) for i in range(3)]
        taken = EventBatch.of(events).take(np.array([2, 0]))
        assert [taken.row(i) for i in range(2)] == [events[2], events[0]]


class TestConcat:
    def test_columns_that_only_some_have(self) -> None:
        rest = [edge("a", "b")._replace(arrival=4), vertex("z")]
        whole = EventBatch.concat([EventBatch.of(EVENTS), EventBatch.of([]), EventBatch.of(rest)])
        assert [whole.row(i) for i in range(len(whole))] == EVENTS + rest

    def test_nulls_alone_go_with_strings(self) -> None:
        parts = [EventBatch.of([Event("create", "vertex", None)]), EventBatch.of([vertex("a")])]
        assert EventBatch.concat(parts).src.to_list() == [None, "a"]

    def test_none_and_one(self) -> None:
        one = EventBatch.of(EVENTS)
        assert len(EventBatch.concat([])) == 0
        assert EventBatch.concat([one]) is one
        assert len(EventBatch.concat([EventBatch.of([])])) == 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (edge(1, 2), "cannot be made of a Event: give a list such as"),
        ([(1, 2)], "a list of other rows"),
        ({"src": [1], "dst": [2]}, "made of a dict"),
    ],
)
def test_other_rows_are_refused(given: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        EventBatch.of(given)
