"""The schema checks itself and survives being stored."""

from __future__ import annotations

import copy
import json
import pickle
import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from d3gnn.events import GraphSchema

SCHEMA = GraphSchema("keyed", False, {"x": 8, "risk": 1}, {"w": 2}, 3)


def test_defaults() -> None:
    schema = GraphSchema()
    assert (schema.edges, schema.directed, schema.width, schema.label_width) == ("simple", True, 0, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"edges": "hyper"}, "choose one of simple, multi, keyed, append"),
        ({"features": {"x": 0}}, "at least 1"),
        ({"features": {"x": 1.5}}, "at least 1"),
        ({"features": {"": 1}}, "a name"),
        ({"edge_features": {"w": -1}}, "at least 1"),
        ({"label_width": 0}, "at least 1"),
        ({"edges": "append", "edge_features": {"w": 1}}, "no edge table"),
        ({"features": {f"f{i}": 1 for i in range(128)}}, "at most 127"),
        ({"missing": "nothing"}, "choose zero, hash, or give numbers for each feature"),
        ({"missing": "mean"}, r"would change with every event.*GraphLog.feature_means"),
        ({"features": {"x": 1}, "missing": {"y": 0.0}}, "the schema declares x"),
        ({"features": {"x": 2}, "missing": {"x": [0.0]}}, "must be 2 finite numbers, or one for all"),
        ({"features": {"x": 1}, "missing": {"x": 1e39}}, "must be 1 finite numbers"),
        ({"features": {"x": 1}, "missing": {"x": float("nan")}}, "must be 1 finite numbers"),
    ],
)
def test_mistakes_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GraphSchema(**arguments)


def test_features_cannot_be_changed_from_outside() -> None:
    widths = {"x": 2}
    schema = GraphSchema(features=widths)
    widths["x"] = 5
    assert schema.width == 2
    with pytest.raises(TypeError):
        schema.features["x"] = 5  # type: ignore[index]


@pytest.mark.parametrize("schema", [SCHEMA, replace(SCHEMA, missing={"risk": 0.5, "x": range(8)})])
def test_it_survives_json_pickle_and_copies(schema: GraphSchema) -> None:
    assert GraphSchema(**json.loads(json.dumps(schema.to_dict()))) == schema
    assert pickle.loads(pickle.dumps(schema)) == schema
    assert copy.deepcopy(schema) == schema
    assert len({schema, replace(schema)}) == 1


def test_the_order_of_features_matters() -> None:
    swapped = replace(SCHEMA, features={"risk": 1, "x": 8})
    assert swapped != SCHEMA
    assert hash(replace(SCHEMA)) == hash(SCHEMA)
    assert SCHEMA != "schema"


class TestForModel:
    def test_without_features_there_is_one_as_wide_as_the_model(self) -> None:
        schema = GraphSchema("multi", False, edge_features={"w": 1}, label_width=2).for_model(16)
        assert schema == GraphSchema("multi", False, {"x": 16}, {"w": 1}, 2, missing="hash")

    def test_features_that_fit_stay(self) -> None:
        assert SCHEMA.for_model(9) is SCHEMA

    def test_the_rule_for_missing_features_is_the_same_if_it_is_given(self) -> None:
        assert replace(SCHEMA, missing="zero") == SCHEMA != replace(SCHEMA, missing="hash")
        assert GraphSchema(missing="hash").for_model(2) == GraphSchema().for_model(2)

    def test_features_that_do_not_fit_are_named(self) -> None:
        with pytest.raises(ValueError, match=r"takes 16 inputs.*9 wide.*x \(8\), risk \(1\)"):
            SCHEMA.for_model(16)


@pytest.mark.parametrize(
    ("given", "microseconds"),
    [("30d", 30 * 86_400_000_000), ("1.5 h", 5_400_000_000), (timedelta(minutes=2), 120_000_000), (7, 7)],
)
def test_lifetimes_are_text_timedeltas_or_integers(given: Any, microseconds: int) -> None:
    schema = GraphSchema(ttl=given, vertex_ttl=given, idle=given)
    assert schema.expiry == (microseconds, microseconds, microseconds)
    assert GraphSchema(**schema.to_dict()) == schema


def test_a_schema_without_lifetimes_is_written_as_before_there_were_any() -> None:
    assert not {"ttl", "vertex_ttl", "idle"} & set(GraphSchema().to_dict())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ttl": "30 days"}, "ttl='30 days': must be a number with a unit"),
        ({"ttl": 0}, "ttl=0"),
        ({"ttl": True}, "ttl=True"),
        ({"ttl": 5, "vertex_ttl": "never"}, "vertex_ttl='never'"),
        ({"vertex_ttl": "1d"}, "vertex_ttl='1d' needs ttl="),
        ({"ttl": "2d", "vertex_ttl": "1d"}, "vertex_ttl=86400000000: must be at least"),
        ({"ttl": "never", "vertex_ttl": "1d"}, "must be at least the ttl of edges"),
        ({"ttl": 5, "edges": "append"}, "edges='append' keeps no edge table"),
    ],
)
def test_bad_lifetimes(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        GraphSchema(**settings)
