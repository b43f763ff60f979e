"""Features and labels as events, from DataFrames with a row for each vertex."""

from __future__ import annotations

import re
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from d3gnn.events import EventBatch, GraphSchema, from_edges, from_queries, validate
from d3gnn.oracle import Oracle
from d3gnn.spark.frames import event_columns
from d3gnn.spark.frames_features import from_deletes, from_features, from_labels

SET = ("op", "element", "src", "value", "time")
DOCS = Path(__file__).resolve().parents[2] / "docs" / "events.md"


def rows(df: DataFrame) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in df.collect()]


def test_a_feature_of_several_columns(spark: SparkSession) -> None:
    vertices = spark.sql(
        "select * from values (1, 2, 0.5D, timestamp'1970-01-01 00:00:01Z'), (2, null, 1D, null), "
        "(3, null, null, null) as t(id, a, `b b`, at)"
    )
    events = from_features(vertices, columns=["b b", "a"], ts="at", name="x")
    assert rows(events.select("op", "element", "src", "value", "time", "feature")) == [
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
    assert rows(events.select(*SET)) == [
        ("update", "feature", "ann", [1.0, 2.0], 0),
        ("delete", "feature", "bob", None, 0),
    ]


def test_labels(spark: SparkSession) -> None:
    vertices = spark.createDataFrame([(7, 1, 5), (8, 0, 6)], "id int, label int, t int")
    assert rows(from_labels(vertices, ts="t").select(*SET)) == [
        ("create", "label", 7, [1.0], 5),
        ("create", "label", 8, [0.0], 6),
    ]


def test_deletes_of_vertices_and_edges(spark: SparkSession) -> None:
    gone = spark.createDataFrame([("ann", "bob", 7, 5)], "who string, whom string, k int, t int")
    columns = ("op", "element", "src", "dst", "key", "time")
    assert rows(from_deletes(gone, id="who", ts="t").select(*columns)) == [
        ("delete", "vertex", "ann", None, None, 5)
    ]
    edges = from_deletes(gone, src="who", dst="whom", key="k")
    assert rows(edges.select(*columns)) == [("delete", "edge", "ann", "bob", 7, 0)]
    for wrong in ({}, {"id": "who", "src": "who", "dst": "whom"}, {"src": "who"}, {"id": "who", "key": "k"}):
        with pytest.raises(ValueError, match=r"give either id|give src and dst"):
            from_deletes(gone, **wrong)


@pytest.mark.parametrize("ids", ["int", "string"])
def test_events_of_all_kinds_union_as_they_are(spark: SparkSession, ids: str) -> None:
    row = spark.sql(
        f"select cast(1 as {ids}) a, cast(2 as {ids}) b, 'k1' k, 0.5D v, timestamp'2026-01-01 00:00:00Z' t"
    )
    kinds = [
        from_features(row, id="a", value="v", ts="t"),  # first: the union has the names and types of all
        from_edges(row, "a", "b", ts="t", key="k"),
        from_labels(row, id="b", value="v"),
        from_deletes(row, id="b"),
        from_deletes(row, src="a", dst="b", key="k", ts="t"),
        from_queries(row, "a", "b"),
    ]
    assert len({tuple(each.columns) for each in kinds}) == 1
    schema = GraphSchema(edges="keyed", features={"x": 1})
    for union in (DataFrame.union, DataFrame.unionByName):
        events = event_columns(reduce(union, kinds))
        assert dict(events.dtypes)["key"] == "string"
        assert dict(events.dtypes)["src"] == ("bigint" if ids == "int" else "string")
        _, bad = validate(events, schema)
        assert [tuple(each) for each in bad.collect()] == []
        assert [each.element for each in events.collect()] == [
            "feature", "edge", "label", "vertex", "edge", "query"
        ]  # fmt: skip


def test_a_null_operation_or_element_means_the_same_as_no_column(spark: SparkSession) -> None:
    edges = spark.sql("select 1L src, 2L dst, cast(null as string) op, cast(null as string) element")
    vertices = spark.sql("select 3L src, cast(null as string) op, cast(null as string) element")
    for given, element in ((edges, "edge"), (vertices, "vertex")):
        [row] = event_columns(given).collect()
        assert (row.op, row.element) == ("create", element)
        assert event_columns(given).collect() == event_columns(given.drop("op", "element")).collect()
        batch = EventBatch.from_arrow(given.toArrow())
        assert (batch.row(0).op, batch.row(0).element) == ("create", element)
        assert Oracle(GraphSchema()).apply(batch)[0].name == "APPLIED"


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
        "reports": spark.sql(
            "select 'bob' account, 1 fraud, false closed, timestamp'2026-01-02 00:00:00Z' reported_at"
        ),
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
