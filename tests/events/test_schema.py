"""The schema checks itself and survives being stored."""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import replace
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
