"""A compacted log creates the same graph, and is minimal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from d3gnn import GraphSchema, LocalEngine
from d3gnn.events import (
    Element,
    Event,
    EventBatch,
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
from d3gnn.kernel.compaction import compact, without_deletes
from d3gnn.kernel.log import LogEntry, MemoryLog
from d3gnn.kernel.operators import Partition
from d3gnn.nn import GraphSAGE
from d3gnn.oracle import Oracle
from d3gnn.testing import OracleChecker, event_batches, schemas

PARTS = 2
PLAIN = GraphSchema(features={"x": 1})


def logged(schema: GraphSchema, stream: Iterable[Iterable[Event]]) -> list[LogEntry]:
    partition = Partition(schema, PARTS)
    return [partition.process(EventBatch.of(events), clock=1).entry for events in stream]


def compacted(schema: GraphSchema, stream: Iterable[Iterable[Event]]) -> LogEntry:
    entry = compact(logged(schema, stream), schema, PARTS)
    assert entry is not None
    return entry


def replayed(schema: GraphSchema, entries: Iterable[LogEntry]) -> dict[str, Any]:
    """The oracle's state after a log, times included; every event of the log must apply, but for the deletes
    with which a compacted log begins.
    """
    oracle, begun = Oracle(schema), False
    for entry in entries:
        for i in range(len(entry)):  # row by row: a log's rows are in the order in which they applied
            result = oracle.apply(entry.events.take(np.array([i])))
            begun |= result == [Reason.APPLIED]
            assert result == [Reason.APPLIED if begun else Reason.NO_SUCH_VERTEX]
    return {
        "features": oracle._features,
        "copies": oracle._copies,
        "edge features": {edge: values for edge, values in oracle._edge_features.items() if values},
        "labels": {id: values for id, values in oracle._labels.items() if values},
    }


@settings(max_examples=80)
@given(data=st.data())
def test_compaction_keeps_the_graph(data: st.DataObject) -> None:
    schema = data.draw(schemas(), "schema")
    stream = event_batches(schema, data.draw(st.sampled_from(["int", "str"]), "ids"), n_vertices=4)
    entries = logged(schema, data.draw(stream, "stream"))
    short = compact(entries, schema, PARTS)
    if short is None:
        assert not sum(map(len, entries))
        return
    expected = replayed(schema, entries)
    assert replayed(schema, [short]) == expected
    again = compact([short], schema, PARTS)
    if not len(short):
        assert again is None
        return
    assert again is not None
    assert len(again) == len(short)
    assert replayed(schema, [again]) == expected


def test_compaction_omits_reverted_changes() -> None:
    stream = [
        [edge(1, 2, time=1), edge(2, 3, time=1), feature(1, [0.5], time=2), feature(1, [0.7], time=3)],
        [delete_edge(1, 2, time=4), vertex(9, time=4), label(1, 2.0, time=4), label(1, 3.0, time=5)],
        [delete_vertex(9, time=6), edge(1, 2, time=6), edge(1, 2, time=7)],
    ]
    kinds = [Element(e).name for e in compacted(PLAIN, stream).events.element]
    assert sorted(kinds) == ["EDGE"] * 2 + ["FEATURE"] + ["LABEL"] + ["VERTEX"] * (3 + 1)  # 9's delete


def test_the_default_feature_and_its_name_are_the_same() -> None:
    entry = compacted(PLAIN, [[feature(1, [1.0]), feature(1, [2.0], time=1, name="x")]])
    assert len(entry) == 2  # the vertex and its feature


def test_an_empty_graph_has_an_empty_log() -> None:
    assert compact([], PLAIN, PARTS) is None
    assert compact(logged(PLAIN, [[], []]), PLAIN, PARTS) is None
    emptied = compacted(PLAIN, [[vertex(1)], [delete_vertex(1, time=1)]])
    assert len(without_deletes(emptied)) == 0
    assert [str(event) for event in emptied.events.rows([0])] == ["delete vertex 1 at 1"]


def test_edges_and_masters_keep_their_parts() -> None:
    stream = [[edge(i % 7, i % 11, time=i) for i in range(60)], [vertex(f, time=99) for f in range(20, 40)]]
    partition = Partition(PLAIN, PARTS)
    entries = [partition.process(EventBatch.of(events), 1).entry for events in stream]
    short = compact(entries, PLAIN, PARTS)
    assert short is not None

    def edges(entry: LogEntry) -> set[tuple[Any, ...]]:
        is_edge = entry.events.element == Element.EDGE
        assert entry.events.dst is not None
        columns = entry.events.src.to_list(), entry.events.dst.to_list(), entry.part.tolist()
        return {
            row for row, row_is_edge in zip(zip(*columns, strict=True), is_edge, strict=True) if row_is_edge
        }

    assert edges(short) == edges(entries[0])
    is_vertex = short.events.element == Element.VERTEX
    keys = short.events.src.take(is_vertex)
    assert short.part[is_vertex].tolist() == partition.locate(keys)[0].tolist()


def test_copies_keep_their_order_and_their_values() -> None:
    schema = GraphSchema(edges="multi", features={"x": 1}, edge_features={"w": 1})
    stream = [
        [edge(1, 2, [10.0], time=1), edge(1, 2, [20.0], time=2), edge(1, 2, [30.0], time=3)],
        [delete_edge(1, 2, time=4), edge(1, 2, time=5), edge_feature(1, 2, [40.0], time=6)],
    ]
    oracle = Oracle(schema)
    entry = compacted(schema, stream)
    for i in range(len(entry)):
        oracle.apply(entry.events.take(np.array([i])))
    assert oracle.edge_features(1, 2) == [{"w": (10.0,)}, {"w": (20.0,)}, {"w": (40.0,)}]


LATE: list[tuple[Sequence[Event], Event]] = [
    ([feature(1, [1.0], time=10)], feature(1, [2.0], time=9)),
    ([feature(1, [1.0], time=5), delete_feature(1, time=10)], feature(1, [2.0], time=9)),
    ([label(1, 1.0, time=10)], label(1, 2.0, time=9)),
    ([label(1, 1.0, time=5), Event("delete", "label", 1, time=10)], label(1, 2.0, time=9)),
    ([edge(1, 2, [1.0], time=10)], edge_feature(1, 2, [2.0], time=9)),
    ([edge(1, 2), Event("delete", "edge_feature", 1, 2, time=10)], edge_feature(1, 2, [2.0], time=9)),
]


@pytest.mark.parametrize(("before", "late"), LATE)
def test_late_events_stay_late_after_a_refresh(before: Sequence[Event], late: Event) -> None:
    schema = GraphSchema(features={"x": 1}, edge_features={"w": 1})
    checker = OracleChecker(LocalEngine(GraphSAGE(1, 2, 1, seed=1), parts=PARTS, schema=schema))
    checker.apply([vertex(1, time=0), *before])
    checker.refresh()
    checker.refresh()
    assert checker.apply([late]).count(Reason.LATE) == 1


FOREIGN: list[tuple[GraphSchema, list[list[Event]], Event]] = [
    (PLAIN, [[vertex(1)], [delete_vertex(1, time=1)]], vertex("1", time=2)),
    (
        GraphSchema(edges="keyed", features={"x": 1}),
        [[edge(1, 2, key=1)], [delete_edge(1, 2, key=1, time=1)]],
        edge(1, 2, key="1", time=2),
    ),
]


@pytest.mark.parametrize(("schema", "stream", "foreign"), FOREIGN)
def test_ids_of_the_wrong_type_stay_wrong_after_a_refresh(
    schema: GraphSchema, stream: list[list[Event]], foreign: Event
) -> None:
    checker = OracleChecker(LocalEngine(GraphSAGE(1, 2, 1, seed=1), parts=PARTS, schema=schema))
    for events in stream:
        checker.apply(events)
    checker.refresh()
    assert checker.apply([foreign]).count(Reason.WRONG_ID_TYPE) == 1


def test_a_long_log_of_small_entries_is_kept_in_order() -> None:
    log = MemoryLog()
    entries = logged(PLAIN, [[edge(i, i + 1, time=i)] for i in range(600)])
    for entry in [*entries, entries[0].__class__(EventBatch.of([]), np.zeros(0, np.int32))]:
        log.append(entry)
    assert len(log.entries) < 200
    whole, expected = LogEntry.concat(log.entries), LogEntry.concat(entries)
    assert whole.events.time.tolist() == list(range(600))
    assert whole.part.tolist() == expected.part.tolist()
    log.replace(entries[0])
    assert log.entries == [entries[0]]


def test_features_of_deleted_edges_are_omitted() -> None:
    schema = GraphSchema(features={"x": 3}, edge_features={"w": 1})
    checker = OracleChecker(LocalEngine(GraphSAGE(3, 2, 1, seed=1), schema=schema))
    checker.apply([edge(0, 1, [1.0], time=0), delete_vertex(0, time=1)])
    checker.refresh()
