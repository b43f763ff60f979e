"""A deleted vertex stays deleted: events that are older than the delete are late."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from d3gnn import GraphSchema, LocalEngine
from d3gnn.events import (
    EdgeMode,
    Event,
    EventBatch,
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
from d3gnn.kernel.operators import Partition
from d3gnn.nn import GraphSAGE
from d3gnn.testing import OracleChecker, event_batches, schemas

MODES: list[EdgeMode] = ["simple", "multi", "keyed", "append"]


def checker(schema: GraphSchema, parts: int = 2) -> OracleChecker:
    return OracleChecker(LocalEngine(GraphSAGE(schema.width, 4, 1, seed=1), schema=schema, parts=parts))


def unchanged(checked: OracleChecker) -> None:
    pass


def saved_and_loaded(checked: OracleChecker) -> None:
    with tempfile.TemporaryDirectory() as folder:
        checked.engine.save(folder)
        checked.engine = LocalEngine.load(folder)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("between", [unchanged, OracleChecker.refresh, saved_and_loaded])
def test_late_transactions_do_not_bring_deleted_accounts_back(
    mode: EdgeMode, between: Callable[[OracleChecker], None]
) -> None:
    key = 1 if mode == "keyed" else None
    checked = checker(GraphSchema(edges=mode, features={"x": 1}))
    accounts = [f"account {i}" for i in range(15)]
    checked.apply([edge("shop", account, key=key, time=10) for account in accounts])
    checked.apply([delete_vertex(account, time=20) for account in accounts])
    between(checked)
    late: list[Event] = []
    for account in accounts:
        late += [edge(account, "shop", key=key, time=19), edge("shop", account, key=key, time=19)]
        late += [feature(account, [1.0], time=19), vertex(account, time=19), label(account, 1.0, time=19)]
        late += [edge(account, f"only through {account}", key=key, time=19)]
    assert set(checked.apply(late).status) == {Reason.LATE}
    assert checked.engine.ids().to_list() == ["shop"]
    # Neither older nor newer, but after the delete in order; and newer.
    again = [edge("shop", accounts[0], key=key, time=20), feature(accounts[1], [1.0], time=21)]
    assert set(checked.apply(again).status) == {Reason.APPLIED}
    assert sorted(map(str, checked.engine.ids().to_list())) == [*accounts[:2], "shop"]


def results(checked: OracleChecker, *events: Event) -> list[str]:
    return [Reason(int(status)).name for status in checked.apply(events).status]


def test_events_before_the_delete_are_late_also_after_a_new_create() -> None:
    checked = checker(GraphSchema(features={"x": 1}, edge_features={"w": 1}))
    checked.apply([edge("a", "b", time=1), delete_vertex("a", time=5), edge("a", "b", time=7)])
    for _ in range(2):
        assert results(checked, edge("a", "c", time=2), feature("a", [1.0], time=2)) == ["LATE", "LATE"]
        assert results(checked, edge_feature("a", "b", [1.0], time=3), vertex("a", time=3)) == ["LATE"] * 2
        checked.refresh()
    # Deletes apply in the order of arrival, whatever their times; the newest delete counts.
    assert results(checked, delete_edge("a", "b", time=2), delete_vertex("a", time=3)) == ["APPLIED"] * 2
    assert results(checked, vertex("a", time=4)) == ["LATE"]
    assert results(checked, feature("a", [1.0], time=4)._replace(op="update")) == ["NO_SUCH_VERTEX"]
    checked.refresh()
    assert results(checked, vertex("a", time=4), vertex("a", time=5)) == ["LATE", "APPLIED"]


def test_a_delete_is_forgotten_after_a_delete_that_is_later_by_more_than_the_bound() -> None:
    checked = checker(GraphSchema(features={"x": 1}, tombstones=10))
    checked.apply([vertex(id, time=0) for id in range(3)])
    assert results(checked, delete_vertex(0, time=100), delete_vertex(1, time=110)) == ["APPLIED"] * 2
    assert results(checked, vertex(0, time=99)) == ["LATE"]
    assert results(checked, delete_vertex(2, time=111)) == ["APPLIED"]
    checked.refresh()
    assert results(checked, vertex(0, time=99), vertex(1, time=99)) == ["APPLIED", "LATE"]


@settings(max_examples=60)
@given(data=st.data())
def test_streams_with_rebuilds_equal_the_oracle(data: st.DataObject) -> None:
    schema = data.draw(schemas(), "schema")
    checked = checker(schema, parts=data.draw(st.sampled_from([1, 3]), "parts"))
    ids: Any = data.draw(st.sampled_from(["int", "str"]), "ids")
    for batch in data.draw(event_batches(schema, ids, n_vertices=4), "stream"):
        checked.apply(batch)
        if data.draw(st.booleans(), "rebuild"):
            checked.refresh()


def test_a_snapshot_holds_the_deletes_that_count() -> None:
    schema = GraphSchema(features={"x": 1}, tombstones="1s")
    partition = Partition(schema, 2)
    second = 1_000_000
    stream: Sequence[Sequence[Event]] = [
        [edge(i, i + 1, time=0) for i in range(5)],
        [delete_vertex(0, time=1), delete_vertex(1, time=second + 1), delete_vertex(2, time=2 * second)],
        [vertex(2, time=3 * second)],
    ]
    entries = [partition.process(EventBatch.of(events), 0).entry for events in stream]
    short = compact(entries, schema, 2)
    assert short is not None
    deletes = short.events.take(short.events.op == 2)
    assert dict(zip(deletes.src.to_list(), deletes.time.tolist(), strict=True)) == {
        1: second + 1,
        2: 2 * second,
    }
    rebuilt = Partition(schema, 2)
    assert not rebuilt.process(short.events, 0, replay=short.part).status.any()
    late = EventBatch.of([vertex(i, time=1) for i in range(3)])
    for each in (partition, rebuilt):
        assert each.process(late, 0).status.tolist() == [Reason.APPLIED, Reason.LATE, Reason.LATE]


def test_graphs_without_vertex_deletes_keep_no_times() -> None:
    partition = Partition(GraphSchema(), 2)
    partition.process(EventBatch.edges([1, 2], [2, 3]), 0)
    assert len(partition.graph().deleted) == 0


def test_the_bound_is_a_length_of_time() -> None:
    for given_, expected in (("30d", 2_592_000_000_000), (timedelta(hours=1), 3_600_000_000), (7, 7)):
        schema = GraphSchema(tombstones=given_)
        assert schema.tombstones == schema.to_dict()["tombstones"] == expected
        assert GraphSchema(**schema.to_dict()) == schema
    assert "tombstones" not in GraphSchema().to_dict(), "stores without it must stay readable"
    for wrong in ("a month", 0, "5 y", True):
        with pytest.raises(ValueError, match="tombstones="):
            GraphSchema(tombstones=wrong)
