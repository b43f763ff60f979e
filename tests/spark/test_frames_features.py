"""Features and labels as events, from DataFrames with a row for each vertex."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from d3gnn.events import EventBatch, GraphSchema, from_edges, validate
from d3gnn.oracle import Oracle
from d3gnn.spark.frames import event_columns
from d3gnn.spark.frames_features import from_features, from_labels

DOCS = Path(__file__).resolve().parents[2] / "docs" / "events.md"


def rows(df: DataFrame) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in df.collect()]


def test_a_feature_of_several_columns(spark: SparkSession) -> None:
    vertices = spark.sql(
        "select * from values (1, 2, 0.5D, timestamp'1970-01-01 00:00:01Z'), (2, null, 1D, null), "
        "(3, null, null, null) as t(id, a, `b b`, at)"
    )
    events = from_features(vertices, columns=["b b", "a"], ts="at", name="x")
    assert events.columns == ["op", "element", "src", "value", "time", "feature"]
    assert rows(events) == [
        ("create", "feature", 1, [0.5, 2.0], 1_000_000, "x"),
        ("create", "feature", 2, [1.0, None], None, "x"),
        ("create", "feature", 3, None, None, "x"),
    ]
    assert dict(events.dtypes)["src"] == "bigint"


def test_a_feature_of_one_column_and_deletes(spark: SparkSession) -> None:
    vertices = spark.createDataFrame(
        [("ann", [1.0, 2.0], "update"), ("bob", None, "delete")], "who string, v array<double>, what string"
    )
    events = from_features(vertices, id="who", value="v", op="what")
    assert rows(events) == [
        ("update", "feature", "ann", [1.0, 2.0], 0),
        ("delete", "feature", "bob", None, 0),
    ]


def test_labels(spark: SparkSession) -> None:
    vertices = spark.createDataFrame([(7, 1, 5), (8, 0, 6)], "id int, label int, t int")
    assert rows(from_labels(vertices, ts="t")) == [
        ("create", "label", 7, [1.0], 5),
        ("create", "label", 8, [0.0], 6),
    ]


def test_bad_columns_are_named(spark: SparkSession) -> None:
    vertices = spark.createDataFrame([(1.5, "x", 2)], "id double, name string, a int")
    with pytest.raises(ValueError, match="give either value"):
        from_features(vertices)
    with pytest.raises(ValueError, match="give either value"):
        from_features(vertices, value="a", columns=["a"])
    with pytest.raises(TypeError, match="the column 'name' is string, but should be a number"):
        from_features(vertices, columns=["a", "name"])
    with pytest.raises(TypeError, match=r"the column 'id' is double.*the column 'name' is string"):
        from_labels(vertices, value="name")


def test_they_join_other_events_as_in_the_documentation(spark: SparkSession) -> None:
    [code] = [
        block
        for block in re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
        if "from_features(" in block
    ]
    namespace: dict[str, Any] = {
        "payments": spark.sql("select 'ann' payer, 'bob' payee, timestamp'2026-01-01 00:00:00Z' paid_at"),
        "accounts": spark.sql("select 'ann' account, 30 age, 0.5D balance"),
        "reports": spark.sql("select 'bob' account, 1 fraud, timestamp'2026-01-02 00:00:00Z' reported_at"),
    }
    exec(code, namespace)
    schema = GraphSchema(features={"x": 2})
    good, bad = validate(namespace["events"], schema)
    assert not bad.count()
    oracle = Oracle(schema)
    oracle.apply(EventBatch.from_arrow(event_columns(good).toArrow()))
    assert oracle.edges() == [("ann", "bob")]
    assert oracle.inputs()[0].tolist() == [30.0, 0.5]
    assert oracle.labels == {"bob": (1.0,)}
    assert from_edges(namespace["payments"], "payer", "payee").columns[0] == "op"
