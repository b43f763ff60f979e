"""The streams hold every kind of event and of trouble."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from d3gnn.events import EdgeMode, Element, Event, EventBatch, GraphSchema, Op, Reason
from d3gnn.events.keys import IntKeys, StringKeys
from d3gnn.oracle import Oracle
from d3gnn.testing import event_batches, random_batches, schemas
from d3gnn.testing.streams import Ids

SCHEMA = GraphSchema(features={"x": 2, "y": 1}, edge_features={"w": 1})
MODES: list[EdgeMode] = ["simple", "multi", "keyed", "append"]


@given(st.data())
def test_batches_are_events_that_the_oracle_takes(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    batches = data.draw(event_batches(schema, data.draw(st.sampled_from(["int", "str"]))))
    oracle = Oracle(schema)
    for events in batches:
        assert all(isinstance(event, Event) for event in events)
        assert len(oracle.apply(events)) == len(events)
    assert oracle.inputs().shape == (len(oracle.vertices), schema.width)
    assert all(u in oracle.vertices and v in oracle.vertices for u, v in oracle.edges())


def test_every_operation_and_reason_shows_up() -> None:
    kinds: set[tuple[str, str]] = set()
    reasons: set[Reason] = set()
    late: set[tuple[str, str]] = set()
    shapes: set[tuple[bool, bool, bool]] = set()

    @settings(max_examples=500, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def collect(data: st.DataObject) -> None:
        schema = data.draw(schemas())
        oracle = Oracle(schema)
        for events in data.draw(event_batches(schema, "str")):
            results = oracle.apply(events)
            reasons.update(results)
            late.update((e.op, e.element) for e, r in zip(events, results, strict=True) if r is Reason.LATE)
            kinds.update((event.op, event.element) for event in events)
            batch = EventBatch.of(events)
            shapes.add((batch.arrival is not None, batch.partition is not None, batch.offset is not None))

    collect()
    assert reasons == set(Reason)
    # Late creates would bring a deleted vertex back.
    assert late >= {("create", element) for element in ("vertex", "feature", "edge", "label")}
    assert kinds >= {(op.name.lower(), element.name.lower()) for op in Op for element in Element}
    assert shapes >= {(False, False, False), (True, False, False), (False, True, True)}


@given(event_batches(SCHEMA, bad=False))
def test_without_bad_events_none_is_bad_in_itself(batches: list[list[Event]]) -> None:
    oracle = Oracle(SCHEMA)
    allowed = {Reason.APPLIED, Reason.REPEATED, Reason.LATE, Reason.NO_SUCH_VERTEX, Reason.NO_SUCH_EDGE}
    for events in batches:
        assert set(oracle.apply(events)) <= allowed


@given(schemas(edges=("multi",), width=3, edge_features=False))
def test_a_schema_can_be_fixed_in_part(schema: GraphSchema) -> None:
    assert (schema.edges, schema.width, len(schema.edge_features)) == ("multi", 3, 0)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("ids", ["int", "str"])
def test_random_batches_hold_what_they_promise(mode: EdgeMode, ids: Ids) -> None:
    edge_features = {} if mode == "append" else {"w": 1, "x": 2}
    schema = GraphSchema(edges=mode, features={"x": 2, "y": 1}, edge_features=edge_features)
    batches = random_batches(schema, 7, 6, 400, 60, ids=ids)
    oracle = Oracle(schema)
    reasons = [reason for batch in batches for reason in oracle.apply(batch)]
    assert [len(batch) for batch in batches] == [400] * 6
    assert {type(batch.src) for batch in batches} == {IntKeys if ids == "int" else StringKeys}
    assert {Reason.APPLIED, Reason.LATE, Reason.UNKNOWN_OPERATION, Reason.NOT_FINITE} <= set(reasons)
    assert reasons.count(Reason.APPLIED) > 0.6 * len(reasons)
    assert (Reason.NO_SUCH_EDGE in reasons) == (mode != "append")
    assert (Reason.REPEATED in reasons) == (mode in ("simple", "keyed"))
    assert len(oracle.edges()) > 200
    is_create = np.concatenate([(b.element == Element.EDGE) & (b.op == Op.CREATE) for b in batches])
    late = [reason is Reason.LATE for reason in reasons] & is_create
    assert late.sum() > 5, "edges that would bring a deleted vertex back"


def test_random_batches_follow_their_seed() -> None:
    one, same, other = (random_batches(SCHEMA, seed, 2, 50, 10)[1] for seed in (1, 1, 2))
    assert one.to_arrow().equals(same.to_arrow())
    assert not one.to_arrow().equals(other.to_arrow())
    assert np.isfinite(random_batches(SCHEMA, 1, 1, 50, 10, bad=0.0)[0].values).all()  # type: ignore[arg-type]


def test_fractions_beyond_one_are_refused() -> None:
    with pytest.raises(ValueError, match="at most 1"):
        random_batches(SCHEMA, 1, 1, 10, 10, delete=0.9, feature=0.5)
