"""The model's input where a vertex lacks a feature, by the rules of the schema."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d3gnn import GraphSchema, LocalEngine
from d3gnn.cli.reports import Totals
from d3gnn.cli.run.missing import missing_features
from d3gnn.events import Event, delete_feature, delete_vertex, edge, feature, vertex
from d3gnn.events.keys import keys_of
from d3gnn.kernel.hashing import initial_values
from d3gnn.nn import GCN, GraphSAGE
from d3gnn.testing import OracleChecker

#: A vertex that never has a feature, one that loses a feature, one that has all, one that is deleted.
STREAM: list[list[Event]] = [
    [edge("none", "lost", time=1), feature("lost", [1.0, 2.0], name="x", time=1), vertex("gone", time=1)],
    [delete_feature("lost", name="x", time=2), feature("all", [3.0, 4.0], name="x", time=2)],
    [feature("all", [5.0], name="y", time=2), edge("all", "none", time=3), delete_vertex("gone", time=4)],
]
HASHED = initial_values(keys_of(["none"]), 3)[0].tolist()


@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        (None, [0.0, 0.0, 0.0]),
        ("zero", [0.0, 0.0, 0.0]),
        ("hash", HASHED),
        ({"x": [0.5, -1.0]}, [0.5, -1.0, 0.0]),
        ({"y": 7, "x": 1}, [1.0, 1.0, 7.0]),
    ],
)
@pytest.mark.parametrize("model", [GraphSAGE(3, 4, 2, seed=1), GCN(3, 4, 2, seed=1)], ids=["sage", "gcn"])
def test_the_input_of_vertices_without_features(
    missing: Any, expected: list[float], model: Any, tmp_path: Path
) -> None:
    schema = GraphSchema(features={"x": 2, "y": 1}, missing=missing)
    engine = LocalEngine(model, schema=schema, parts=2)
    checker = OracleChecker(engine)
    lacking = []
    for batch in STREAM:
        checker.apply(batch)
        lacking.append((engine.partition.lacking, len(engine)))
    assert lacking == [(3, 3), (4, 4), (2, 3)]
    assert engine.inputs(["none", "all"]).tolist() == [expected, [3.0, 4.0, 5.0]]
    checker.refresh()
    assert engine.partition.lacking == 2
    engine.save(tmp_path)
    loaded = LocalEngine.load(tmp_path)
    assert loaded.schema == engine.schema
    np.testing.assert_array_equal(loaded.inputs(["none", "lost"]), engine.inputs(["none", "lost"]))


def test_a_schema_without_features_means_hash() -> None:
    engine = LocalEngine(GraphSAGE(3, 4, 1, seed=1))
    engine.apply([edge("none", "other", time=1)])
    assert engine.inputs(["none"]).tolist() == [HASHED]
    zeros = LocalEngine(GraphSAGE(3, 4, 1, seed=1), schema=GraphSchema(missing="zero"))
    zeros.apply([edge("none", "other", time=1)])
    assert zeros.inputs(["none"]).tolist() == [[0.0, 0.0, 0.0]]


@pytest.mark.parametrize(
    ("lacking", "trained", "rule", "warns"),
    [
        (51, True, "zero", True),
        (50, True, "zero", False),
        (100, False, "zero", True),
        (100, True, "hash", True),
        (100, False, "hash", False),
        (100, True, {"x": (1.0,)}, True),
    ],
)
def test_a_run_warns_if_most_vertices_lack_features(
    lacking: int, trained: bool, rule: Any, warns: bool
) -> None:
    text = missing_features(Totals(vertices=100, lacking=lacking), trained=trained, rule=rule)
    assert text.startswith(f"warning: {lacking} of 100 vertices lack a feature") if warns else not text


@pytest.mark.parametrize(
    ("rule", "advice"), [("mean", "Fix the numbers"), ("drop", "Let edges wait in the stream")]
)
def test_rules_without_an_exact_meaning_say_what_to_do(rule: Any, advice: str) -> None:
    with pytest.raises(ValueError, match=advice):
        GraphSchema(features={"x": 2}, missing=rule)
