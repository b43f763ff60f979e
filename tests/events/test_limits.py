"""Limits: values, times and ids that are well formed, and that no sane source sends."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from d3gnn import GraphSchema, LocalEngine
from d3gnn.events import (
    Event,
    EventBatch,
    Reason,
    delete_vertex,
    edge,
    edge_feature,
    feature,
    label,
    query,
    vertex,
)
from d3gnn.events.check import check
from d3gnn.nn import GraphSAGE

SCHEMA = GraphSchema(features={"x": 2}, edge_features={"w": 1}, max_abs=1e6)
#: A clock of today, in microseconds.
NOW = 1_767_225_600_000_000
DAY = 86_400_000_000
APPLIED, AHEAD = Reason.APPLIED, Reason.TOO_FAR_AHEAD


def reasons(schema: GraphSchema, *events: Event) -> list[Reason]:
    return [Reason(r) for r in check(EventBatch.of(events), schema)]


def make_engine(**schema: Any) -> LocalEngine:
    model = GraphSAGE(2, 4, 1, seed=0)
    return LocalEngine(model, schema=GraphSchema(features={"x": 2}, **schema))


def results(engine: LocalEngine, events: Any, **clock: int) -> list[Reason]:
    return [Reason(r) for r in engine.apply(events, **clock).status]


# ------------------------------------------------------------------ the schema


@pytest.mark.parametrize(
    "arguments",
    [{"max_abs": 0}, {"max_abs": -1.0}, {"max_abs": "1"}, {"max_abs": float("inf")}, {"max_abs": True}]
    + [{"max_ahead": limit} for limit in ("1 day", -1, 1.5, 2**63)],
    ids=str,
)
def test_mistakes_are_named(arguments: dict[str, Any]) -> None:
    ((name, given),) = arguments.items()
    with pytest.raises(ValueError, match=f"^{name}={given!r}: "):
        GraphSchema(**arguments)


@pytest.mark.parametrize("max_ahead", ["12h", timedelta(days=2), 5, None])
def test_limits_survive_json(max_ahead: Any) -> None:
    schema = GraphSchema(max_abs=10, max_ahead=max_ahead)
    assert GraphSchema(**json.loads(json.dumps(schema.to_dict()))) == schema
    assert schema != GraphSchema()


def test_stores_do_not_fix_limits() -> None:
    assert GraphSchema(max_abs=1).to_dict(limits=False) == GraphSchema(max_ahead=None).to_dict(limits=False)
    assert not {"max_abs", "max_ahead"} & set(SCHEMA.to_dict(limits=False))


# ------------------------------------------------------------------ values


def test_values_beyond_the_bound_are_dead_letters() -> None:
    given = [
        (feature(1, [1e6, -1e6]), APPLIED),
        (feature(1, [0, -1.1e6]), Reason.TOO_LARGE),
        (vertex(1, [3e38, 0]), Reason.TOO_LARGE),
        (edge(1, 2, [1e7]), Reason.TOO_LARGE),
        (edge_feature(1, 2, [-1e7]), Reason.TOO_LARGE),
        (label(1, 1e7), Reason.TOO_LARGE),
        (feature(1, [1e7, float("nan")]), Reason.NOT_FINITE),
        (feature(1, [float("inf"), 0]), Reason.NOT_FINITE),
    ]
    assert reasons(SCHEMA, *(event for event, _ in given)) == [reason for _, reason in given]


def test_any_finite_value_is_good_unless_there_is_a_bound() -> None:
    assert reasons(GraphSchema(features={"x": 2}), feature(1, [3e38, -3e38])) == [APPLIED]


def test_a_dead_letter_has_its_reason() -> None:
    engine = make_engine(max_abs=1.0)
    (letter,) = engine.apply([feature(1, [2.0, 0.0]), feature(2, [1.0, 0.0])]).dead_letters
    assert letter.event.src == 1
    assert "max_abs" in letter.reason
    assert engine.ids().to_list() == [2]


# ------------------------------------------------------------------ ids


def test_ids_that_are_too_long_are_dead_letters() -> None:
    longest, beyond = "é" * 512, "é" * 512 + "x"
    given = [
        (vertex(longest), APPLIED),
        (vertex(beyond), Reason.ID_TOO_LONG),
        (edge(longest, "b", key="k"), APPLIED),
        (edge(beyond, "b", key="k"), Reason.ID_TOO_LONG),
        (edge("a", beyond, key="k"), Reason.ID_TOO_LONG),
        (edge("a", "b", key=beyond), Reason.ID_TOO_LONG),
        (query("a", beyond), Reason.ID_TOO_LONG),
        (delete_vertex(beyond), Reason.ID_TOO_LONG),
    ]
    schema = GraphSchema(edges="keyed")
    assert reasons(schema, *(event for event, _ in given)) == [reason for _, reason in given]


def test_a_batch_of_only_edges_is_checked_too() -> None:
    engine = make_engine()
    batch = EventBatch.edges(["a", "b" * 2000, "c"], ["b", "a", "d"])
    assert results(engine, batch) == [APPLIED, Reason.ID_TOO_LONG, APPLIED]
    batch = EventBatch.edges(["a"], ["b" * 2000])
    assert results(engine, batch) == [Reason.ID_TOO_LONG]
    assert sorted(map(str, engine.ids().to_list())) == ["a", "b", "c", "d"]


# ------------------------------------------------------------------ times


def test_an_event_from_the_far_future_does_not_make_later_ones_late() -> None:
    engine = make_engine()
    far = feature(1, [9.0, 9.0], time=datetime(9999, 1, 1))
    assert results(engine, [feature(1, [1.0, 1.0], time=NOW), far], clock=NOW) == [APPLIED, AHEAD]
    assert results(engine, [feature(1, [2.0, 2.0], time=NOW + 5)], clock=NOW) == [APPLIED]
    assert engine.inputs([1]).tolist() == [[2.0, 2.0]]


@pytest.mark.parametrize(
    "make",
    [
        lambda time: EventBatch.edges([1, 3], [2, 4], time=[time, NOW]),
        lambda time: EventBatch.edges([1, 3], [2, 4], time=[time, NOW], arrival=[NOW, NOW]),
        lambda time: [vertex(1, time=time), edge(3, 2, time=NOW)],
        lambda time: [label(1, 1.0, time=time), vertex(9, time=NOW)],
    ],
    ids=["edges", "edges with arrival", "vertices", "labels"],
)
def test_the_bound_is_one_day_after_the_arrival(make: Callable[[int], Any]) -> None:
    for time, expected in ((NOW + DAY, APPLIED), (NOW + DAY + 1, AHEAD), (2**63 - 1, AHEAD)):
        assert results(make_engine(), make(time), clock=NOW) == [expected, APPLIED]
    assert results(make_engine(max_ahead="2d"), make(NOW + 2 * DAY), clock=NOW) == [APPLIED] * 2
    assert results(make_engine(max_ahead=None), make(2**63 - 1), clock=NOW) == [APPLIED] * 2


@pytest.mark.parametrize("time", [-(2**63) + 1, -5, 0, 10**6, NOW - 10**15, NOW + DAY])
def test_small_and_past_times_are_never_ahead(time: int) -> None:
    assert results(make_engine(), [edge(1, 2, time=time)], clock=NOW) == [APPLIED]
    assert results(make_engine(), [vertex(1, time=time)._replace(arrival=NOW)], clock=2) == [APPLIED]


@pytest.mark.parametrize("arrival", [None, -(2**62), 0, 7, 946_684_799_999_999])
def test_nothing_is_ahead_of_an_artificial_clock(arrival: int | None) -> None:
    events = [
        edge(1, 2, time=2**62)._replace(arrival=arrival),
        vertex(3, time=2**62)._replace(arrival=arrival),
    ]
    assert results(make_engine(), events[:1], clock=5) == [APPLIED]
    assert results(make_engine(), events, clock=5) == [APPLIED] * 2


def test_a_replay_does_not_check_limits_again(tmp_path: Path) -> None:
    engine = make_engine()
    engine.apply([feature(1, [1.0, 1.0], time=NOW + DAY)], clock=NOW)
    before = engine.embeddings([1])
    engine.save(tmp_path / "engine")
    loaded = LocalEngine.load(tmp_path / "engine")
    for each in (engine, loaded):
        each.refresh()
        assert (each.embeddings([1]) == before).all()
    assert loaded.schema == engine.schema


@pytest.mark.parametrize("column", ["time", "arrival", "partition", "offset"])
@pytest.mark.parametrize("number", [2**63, -(2**63) - 1])
def test_times_beyond_64_bits_are_named(column: str, number: int) -> None:
    changes: Any = {column: number}
    event = edge(1, 2)._replace(**changes)
    with pytest.raises(ValueError, match=f"^{column}={number}: out of range; it must fit into 64 bits"):
        make_engine().apply([edge(1, 2), event])


@pytest.mark.parametrize("times", [[2**63], np.array([2**63], np.uint64)], ids=["list", "array"])
def test_times_of_columns_beyond_64_bits_are_named(times: Any) -> None:
    with pytest.raises(ValueError, match=r"^time=9223372036854775808: out of range"):
        EventBatch.edges([1], [2], time=times)
    assert EventBatch.edges([1], [2], time=np.array([5], np.uint64)).time.tolist() == [5]
    with pytest.raises(ValueError, match="9223372036854775808"):
        EventBatch.from_arrow(pa.table({"src": [1], "time": pa.array(np.array([2**63], np.uint64))}))
