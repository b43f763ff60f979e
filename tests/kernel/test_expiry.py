"""Partition deletes what has expired: in order, in the log, and in the same way after a rebuild."""

from __future__ import annotations

import faulthandler
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import Phase, given, settings

from d3gnn import GraphSchema
from d3gnn.events import (
    EdgeMode,
    Element,
    Event,
    EventBatch,
    Op,
    Reason,
    delete_edge,
    delete_vertex,
    edge,
    edge_feature,
    feature,
    label,
    vertex,
)
from d3gnn.kernel.compaction import compact
from d3gnn.kernel.log import LogEntry
from d3gnn.kernel.operators import Partition, expire
from d3gnn.oracle import Oracle
from d3gnn.testing import event_batches, schemas
from d3gnn.testing.streams import Ids

#: Links of the wheel that are wrong make compiled code run for ever, which nothing but the end of the process
#: ends; and to simplify a stream that fails takes long.
_SECONDS = 300
_NOT_SIMPLIFIED = (Phase.explicit, Phase.reuse, Phase.generate)

WIDTHS: Any = {"features": {"x": 1}, "edge_features": {"w": 1}}
EXPIRING = schemas(edges=("simple", "multi", "keyed"), expiry=True)


@pytest.fixture(scope="module")
def compiled_code() -> None:
    """Compiled before the time begins to count, which may take minutes."""
    engine = Engine(GraphSchema(ttl=10, vertex_ttl=10, **WIDTHS))
    engine.apply([edge(1, 2, [1.0], time=0), feature(1, [1.0], time=0), label(2, 1.0, time=0)])
    engine.rebuild()
    engine.apply([delete_vertex(2, time=1), edge(1, 3, time=90), vertex(9, time=100)])


@pytest.fixture(autouse=True)
def end_of_endless_loops(compiled_code: None) -> Iterator[None]:
    faulthandler.dump_traceback_later(_SECONDS, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


class Engine:
    """Partition and its log, beside the oracle."""

    def __init__(self, schema: GraphSchema, parts: int = 2) -> None:
        self.schema, self.parts = schema, parts
        self.partition, self.oracle = Partition(schema, parts), Oracle(schema)
        self.entries: list[LogEntry] = []

    def apply(self, events: list[Event], clock: int = 1) -> list[Reason]:
        result = self.partition.process(EventBatch.of(events), clock=clock)
        reasons = self.oracle.apply(events, clock)
        assert [Reason(int(status)) for status in result.status] == reasons
        self.entries.append(result.entry)
        assert sorted(map(str, self.partition.live_ids().to_list())) == sorted(map(str, self.oracle.vertices))
        return reasons

    def rebuild(self) -> None:
        """Replace Partition by one that knows the compacted log and the watermark."""
        entry = compact(self.entries, self.schema, self.parts)
        rebuilt = Partition(self.schema, self.parts)
        rebuilt.types = self.partition.types
        if entry is not None:
            rebuilt.process(entry.events, 0, replay=entry.part)
            self.entries = [entry]
        rebuilt.watermark = self.partition.watermark
        self.partition = rebuilt

    def graph(self) -> dict[str, Any]:
        """The graph that the log creates, with all lifetimes."""
        replayed = Oracle(self.schema, replays=True)
        for entry in self.entries:
            for i in range(len(entry)):
                assert replayed.apply(entry.events.take(np.array([i]))) == [Reason.APPLIED]
        return state_of(replayed)


def state_of(oracle: Oracle) -> dict[str, Any]:
    return {
        "features": oracle._features,
        "copies": oracle._copies,
        "edge features": {name: values for name, values in oracle._edge_features.items() if values},
        "labels": {id: values for id, values in oracle._labels.items() if values},
        "edges' lives": oracle._lifetimes._edges,
        "vertices' lives": oracle._lifetimes._vertices,
    }


@settings(max_examples=150, phases=_NOT_SIMPLIFIED)
@given(data=st.data())
def test_the_log_has_what_expired_and_a_rebuild_goes_on_in_the_same_way(data: st.DataObject) -> None:
    schema = data.draw(EXPIRING, "schema")
    engine = Engine(schema)
    ids: Ids = data.draw(st.sampled_from(["int", "str"]), "ids")
    for events in data.draw(event_batches(schema, ids, n_vertices=4, max_batches=7), "stream"):
        engine.apply(events)
        if data.draw(st.booleans(), "rebuild"):
            engine.rebuild()
        assert engine.graph() == state_of(engine.oracle)


def test_an_edge_expires_when_its_last_event_is_older_than_its_ttl() -> None:
    engine = Engine(GraphSchema(ttl=10, **WIDTHS))
    engine.apply([edge(1, 2, time=0), edge(2, 3, time=1), vertex(9, time=10)])
    assert engine.oracle.edges() == [(1, 2), (2, 3)]  # exactly as old as the ttl
    engine.apply([vertex(8, time=11)])
    assert engine.oracle.edges() == [(2, 3)]
    log = engine.entries[-1]
    assert log.events.op.tolist() == [Op.CREATE, Op.DELETE]
    assert log.events.row(1).time == 10  # the time at which it expired
    assert len(engine.partition.live_ids()) == 5  # its ends stay


@pytest.mark.parametrize(
    "prolongs",
    [edge(1, 2, time=8), edge(1, 2, [1.0], time=8), edge_feature(1, 2, [1.0], time=8)],
    ids=["repeat", "repeat with a value", "feature"],
)
def test_events_of_an_edge_prolong_it(prolongs: Event) -> None:
    engine = Engine(GraphSchema(ttl=10, **WIDTHS))
    assert engine.apply([edge(1, 2, time=0), prolongs]) == [Reason.APPLIED, Reason.APPLIED]
    engine.rebuild()
    engine.apply([vertex(9, time=18)])
    assert engine.oracle.edges() == [(1, 2)]
    engine.apply([vertex(9, time=19), vertex(8, time=19)])
    assert engine.oracle.edges() == []


@pytest.mark.parametrize("kept", [slice(1, None), slice(0, -1)], ids=["first", "last"])
@pytest.mark.parametrize(
    "test", ["a deleted edge", "an edge that is too old", "an idle stream", "parallel edges", "vertices"]
)
def test_one_expired_edge_that_is_dropped_is_noticed(
    test: str, kept: slice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tests of this file fail where Partition forgets one edge or vertex of those that expire."""
    take = expire._take

    def take_fewer(*arguments: Any) -> tuple[Any, Any]:
        found, expires = take(*arguments)
        return found[kept], expires[kept]

    monkeypatch.setattr(expire, "_take", take_fewer)
    tests: dict[str, Callable[[], None]] = {
        "a deleted edge": test_a_deleted_edge_does_not_expire_and_its_record_is_used_again,
        "an edge that is too old": test_an_edge_expires_when_its_last_event_is_older_than_its_ttl,
        "an idle stream": test_an_idle_stream_expires_by_the_clock,
        "parallel edges": test_parallel_edges_expire_one_by_one_from_any_place,
        "vertices": test_vertices_expire_with_their_features_and_labels_but_not_before_their_edges,
    }
    with pytest.raises(AssertionError):
        tests[test]()


def test_an_older_repeat_prolongs_nothing() -> None:
    engine = Engine(GraphSchema(ttl=10, **WIDTHS))
    engine.apply([edge(1, 2, time=5)])
    assert engine.apply([edge(1, 2, time=5)]) == [Reason.REPEATED]
    assert engine.apply([edge(1, 2, time=3)]) == [Reason.REPEATED]


def test_an_edge_that_would_have_expired_is_late_and_creates_nothing() -> None:
    engine = Engine(GraphSchema(ttl=10, **WIDTHS))
    engine.apply([vertex(9, time=100)])
    assert engine.apply([edge(1, 2, time=89), edge(3, 4, time=90)]) == [Reason.LATE, Reason.APPLIED]
    assert engine.oracle.vertices == [9, 3, 4]
    assert engine.partition.metrics["late"] == 1


def test_an_edge_is_created_again_after_it_expired() -> None:
    engine = Engine(GraphSchema(ttl=10, **WIDTHS))
    engine.apply([edge(1, 2, [3.0], time=0), edge(1, 1, time=0)])
    engine.apply([vertex(9, time=50)])
    assert engine.apply([edge(1, 2, time=50), edge(1, 1, time=49)]) == [Reason.APPLIED] * 2
    assert engine.oracle.edge_features(1, 2) == [{}]
    engine.apply([vertex(8, time=60)])
    assert engine.oracle.edges() == [(1, 2)]


def test_a_deleted_edge_does_not_expire_and_its_record_is_used_again() -> None:
    engine = Engine(GraphSchema(ttl=10, **WIDTHS))
    engine.apply([edge(1, 2, time=0), edge(2, 3, time=0)])
    engine.apply([delete_edge(1, 2, time=1), delete_vertex(3, time=1)])
    engine.apply([edge(1, 4, time=5), vertex(8, time=11)])
    assert engine.partition.metrics["expired"] == 0
    engine.apply([vertex(7, time=16)])
    assert engine.partition.metrics["expired"] == 1


def test_parallel_edges_expire_one_by_one_from_any_place() -> None:
    schema = GraphSchema(edges="multi", ttl=10, **WIDTHS)
    engine = Engine(schema)
    lives = [9, None, 3, 12, 1, None]
    engine.apply([replace_ttl(edge(1, 2, [float(i)], time=i), ttl) for i, ttl in enumerate(lives)])
    alive = [(i + (10 if ttl is None else ttl), float(i)) for i, ttl in enumerate(lives)]
    for time in range(6, 18):
        engine.apply([vertex(9, time=time), vertex(time, time=time)])
        expected = [{"w": (value,)} for end, value in alive if end >= time]
        assert engine.oracle.edge_features(1, 2) == expected
        assert engine.graph() == state_of(engine.oracle)
        if time % 4 == 0:
            engine.rebuild()


def replace_ttl(event: Event, ttl: int | None) -> Event:
    return event._replace(ttl=ttl)


def test_edges_of_their_own_ttl_and_edges_that_never_expire() -> None:
    engine = Engine(GraphSchema(ttl="never", **WIDTHS))
    engine.apply([edge(1, 2, time=0, ttl=5), edge(2, 3, time=0), edge(3, 4, time=0, ttl=50)])
    engine.rebuild()
    engine.apply([vertex(9, time=40)])
    assert engine.oracle.edges() == [(2, 3), (3, 4)]
    engine.apply([vertex(8, time=10**15)])
    assert engine.oracle.edges() == [(2, 3)]


def test_vertices_expire_with_their_features_and_labels_but_not_before_their_edges() -> None:
    engine = Engine(GraphSchema(ttl=10, vertex_ttl=20, **WIDTHS))
    engine.apply(
        [feature(1, [2.0], time=0), label(1, 1.0, time=0), edge(2, 3, time=5), edge(4, 5, time=0, ttl=90)]
    )
    engine.apply([vertex(9, time=21)])
    assert engine.oracle.vertices == [4, 5, 2, 3, 9]
    engine.apply([vertex(9, time=26)])
    assert engine.oracle.vertices == [4, 5, 9]  # 4 and 5 have an edge
    engine.rebuild()
    assert engine.apply([feature(1, [1.0], time=5)]) == [Reason.LATE]
    engine.apply([feature(1, [1.0], time=6)])
    engine.apply([vertex(9, time=91)])
    assert engine.oracle.vertices == [9]


def test_what_comes_too_old_for_its_batch_is_added_and_expires_at_its_end() -> None:
    """Within a batch, events are in order: an edge was in time when its event was applied."""
    engine = Engine(GraphSchema(ttl=10, vertex_ttl=10, **WIDTHS))
    assert engine.apply([edge(1, 2, time=0), edge(3, 4, time=50)]) == [Reason.APPLIED] * 2
    assert engine.oracle.vertices == [3, 4]
    assert len(engine.entries[0]) == 5  # two creates, and the deletes of an edge and its ends


def test_an_idle_stream_expires_by_the_clock() -> None:
    engine = Engine(GraphSchema(ttl=10, idle=100, **WIDTHS))
    engine.apply([edge(1, 2, time=1000)], clock=1000)
    assert engine.partition.next_expiry <= 1111
    engine.apply([], clock=1110)
    assert engine.oracle.edges() == [(1, 2)]
    engine.apply([], clock=1111)
    assert engine.oracle.edges() == []
    assert len(engine.entries[-1]) == 1


def test_a_batch_without_applied_events_expires_nothing() -> None:
    engine = Engine(GraphSchema(ttl=10, **WIDTHS))
    engine.apply([edge(1, 2, time=0)])
    engine.apply([delete_edge(5, 6, time=10**9), edge(1, 2, [1.0, 2.0], time=10**9)])  # dead letters
    assert engine.oracle.edges() == [(1, 2)]


@pytest.mark.parametrize("edges", ["simple", "multi", "keyed"])
def test_without_a_ttl_the_state_has_no_room_for_lifetimes(edges: EdgeMode) -> None:
    def size(schema: GraphSchema) -> int:
        partition = Partition(schema, 1)
        key = 1 if edges == "keyed" else None
        partition.process(EventBatch.of([edge(i, i + 1, key=key) for i in range(1000)]), clock=1)
        return partition.part_state.nbytes

    plain = GraphSchema(edges=edges)
    assert size(replace(plain, ttl=5)) >= size(plain) + 1000 * 5 * 8


def test_a_ttl_where_it_means_nothing_is_a_dead_letter() -> None:
    wrong = [
        edge(1, 2, ttl=5),
        Event("create", "edge", 1, 2, ttl=0),
        Event("create", "feature", 1, value=[1.0], ttl=5),
        Event("update", "edge", 1, 2, value=[1.0], ttl=5),
        Event("delete", "edge", 1, 2, ttl=5),
        Event("create", "vertex", 1, ttl=5),
    ]
    expiring = Engine(GraphSchema(ttl=10, **WIDTHS))
    assert expiring.apply(wrong)[1:] == [Reason.WRONG_TTL] * 5
    assert Engine(GraphSchema(**WIDTHS)).apply(wrong[:1]) == [Reason.WRONG_TTL]
    assert Engine(GraphSchema(ttl=10, vertex_ttl=10, **WIDTHS)).apply(wrong[5:]) == [Reason.APPLIED]
    assert {Element(int(e)) for e in expiring.entries[0].events.element} == {Element.EDGE}
