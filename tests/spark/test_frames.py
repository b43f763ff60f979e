from __future__ import annotations

from datetime import date, datetime
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from d3gnn.events import Event, EventBatch, GraphSchema, Reason
from d3gnn.events.check import check
from d3gnn.spark.frames import (
    EVENT_COLUMNS,
    SHARED_COLUMNS,
    event_columns,
    from_edges,
    from_queries,
    validate,
)
from d3gnn.spark.stages import in_event_format
from d3gnn.spark.tables import latest
from d3gnn.testing import event_batches, random_batches, schemas
from d3gnn.testing.streams import Ids

FULL = GraphSchema(edges="keyed", features={"x": 2, "y": 1}, edge_features={"w": 1}, label_width=2)


def types(df: DataFrame) -> dict[str, str]:
    return dict(df.dtypes)


def rows(df: DataFrame) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in df.collect()]


# ------------------------------------------------------------------ edge lists


def test_edges_without_other_columns(spark: SparkSession) -> None:
    events = from_edges(spark.createDataFrame([(1, 2)], "a int, b smallint"), "a", "b")
    names = {"op": "string", "element": "string", "src": "bigint", "dst": "bigint", "time": "bigint"}
    more = {"key": "void", "feature": "string", "value": "array<float>", "arrival": "bigint", "ttl": "bigint"}
    assert types(events) == names | more
    assert rows(events.select(*names)) == [("create", "edge", 1, 2, 0)]


def test_queries_in_a_union_with_events(spark: SparkSession) -> None:
    asked = spark.createDataFrame([("ann", "tea")], "who string, what string")
    edges = from_edges(spark.createDataFrame([("ann", "rum", 5)], "src string, dst string, t long"), ts="t")
    both = edges.unionByName(from_queries(asked, src="who", dst="what"), allowMissingColumns=True)
    good, bad = validate(both, GraphSchema())
    assert rows(good.select("op", "element", "src", "dst", "time")) == [
        ("create", "edge", "ann", "rum", 5),
        ("create", "query", "ann", "tea", 0),
    ]
    assert not rows(bad)


def test_edges_with_a_lifetime(spark: SparkSession) -> None:
    lives = spark.createDataFrame([(1, 2, 60), (2, 3, None), (3, 4, 0)], "src int, dst int, life int")
    events = from_edges(lives, ttl="life")
    assert types(events)["ttl"] == "bigint"
    good, bad = validate(events, GraphSchema(ttl=5))
    assert [row[-1] for row in rows(good.orderBy("src"))] == [60, None]
    assert [row.reason for row in bad.collect()] == [Reason.WRONG_TTL.text]
    assert validate(events, GraphSchema())[1].count() == 2


def test_edges_with_all_columns(spark: SparkSession) -> None:
    when = F.timestamp_micros(F.lit(1_700_000_000_000_001))
    edges = spark.sql("select 'ann' as u, 'bob' as v, 7 as k, 0.5D as weight, 'w' as n, 'update' as what")
    edges = edges.select("*", when.alias("at"), F.lit(5).alias("came"), F.lit(1).alias("more"))
    events = from_edges(edges, "u", "v", "at", "what", "k", "weight", "n", "came")
    assert events.columns == list(SHARED_COLUMNS)
    assert rows(events) == [("update", "edge", "ann", "bob", 7, "w", [0.5], 1_700_000_000_000_001, 5, None)]


def test_ends_have_one_type(spark: SparkSession) -> None:
    events = from_edges(spark.createDataFrame([(1, "2")], "src int, dst string"))
    assert rows(events.select("src", "dst")) == [("1", "2")]


@pytest.mark.parametrize(
    ("expression", "micros"),
    [
        ("timestamp_ntz'1970-01-02 00:00:00.000001'", 86_400_000_001),
        ("timestamp'1970-01-02 01:00:00+01:00'", 86_400_000_000),
        ("date'1969-12-31'", -86_400_000_000),
        ("7", 7),
        ("cast(null as timestamp)", None),
    ],
)
def test_times_are_microseconds(spark: SparkSession, expression: str, micros: int | None) -> None:
    events = from_edges(spark.sql(f"select 1 as src, 2 as dst, {expression} as ts"), ts="ts")
    assert types(events)["time"] == "bigint"
    assert rows(events.select("time")) == [(micros,)]


def test_times_are_the_same_as_those_of_arrow(spark: SparkSession) -> None:
    context = datetime(2024, 2, 29, 12, 30, 0, 123456)
    table = pa.table({"src": [1], "dst": [2], "time": pa.array([context], pa.timestamp("us"))})
    [row] = event_columns(spark.createDataFrame(table)).collect()
    assert row.time == EventBatch.from_arrow(table).time[0]


def test_arrays_are_values_and_a_null_is_none(spark: SparkSession) -> None:
    edges = spark.createDataFrame([(1, 2, [1.0, 1e39]), (1, 2, None)], "src int, dst int, v array<double>")
    assert rows(from_edges(edges, value="v").select("value")) == [([1.0, float("inf")],), (None,)]
    number = spark.createDataFrame([(1, 2, None)], "src int, dst int, v double")
    assert rows(from_edges(number, value="v").select("value")) == [(None,)]


def test_columns_of_wrong_types_are_named(spark: SparkSession) -> None:
    edges = spark.sql("select 1.5D as a, array(1) as b, '2024-01-01' as ts, 'heavy' as v")
    with pytest.raises(TypeError, match=r"'a' is double.*'b' is array<int>.*'v' is string.*'ts' is string"):
        from_edges(edges, "a", "b", ts="ts", value="v")


def test_a_vertex_may_carry_its_neighbours(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(
        '{"src": "ann", "time": 1, "neighbours": []}\n'
        '{"src": "bob", "time": 2, "value": [0.5], "neighbours": ["ann", "cho"]}\n'
    )
    schema = "src string, time long, value array<float>, neighbours array<string>"
    events = event_columns(spark.read.schema(schema).json(str(tmp_path)))
    assert rows(events.select("op", "element", "src", "dst", "value", "time")) == [
        ("create", "vertex", "ann", None, None, 1),
        ("create", "vertex", "bob", None, [0.5], 2),
        ("create", "edge", "bob", "ann", None, 2),
        ("create", "edge", "bob", "cho", None, 2),
    ]
    stream = in_event_format(spark.readStream.schema(schema).json(str(tmp_path)))
    assert stream.columns == ["element", "src", "dst", "value", "time"]


def test_streaming_dataframes(spark: SparkSession, tmp_path: Path) -> None:
    stream = spark.readStream.schema("src int, dst int, ts timestamp").csv(str(tmp_path))
    edges = from_edges(stream, ts="ts")
    carried = ["src", "dst", "time"]
    assert in_event_format(edges).columns == carried, "columns without news cost time in every batch"
    assert in_event_format(edges.where("src > 1")).columns == list(SHARED_COLUMNS)
    good, bad = validate(event_columns(edges), FULL)
    assert good.isStreaming
    assert bad.isStreaming
    assert bad.columns == [*EVENT_COLUMNS, "reason"]


# ------------------------------------------------------------------ the event format


def test_all_columns_in_fixed_types(spark: SparkSession) -> None:
    fixed = {
        "op": "string", "element": "string", "src": "string", "dst": "string", "key": "bigint",
        "feature": "string", "value": "array<float>", "time": "bigint", "arrival": "bigint",
        "partition": "bigint", "offset": "bigint", "ttl": "bigint",
    }  # fmt: skip
    vertices = event_columns(spark.createDataFrame([("ann", 1)], "src string, extra int"))
    assert types(vertices) == fixed
    assert rows(vertices) == [("create", "vertex", "ann", *[None] * 4, 0, *[None] * 4)]
    events = spark.sql(
        "select 's' as src, 'd' as dst, 'k' as key, array(1, 2) as value, 3S as time, null as arrival,"
        " 1 as partition, 2Y as offset, 4 as ttl, null as feature, 'edge' as element, 'delete' as op"
    )
    assert types(event_columns(events)) == fixed | {"key": "string"}
    assert event_columns(events).columns == list(EVENT_COLUMNS)
    assert rows(event_columns(events)) == [("delete", "edge", "s", "d", "k", None, [1, 2], 3, None, 1, 2, 4)]


def test_missing_and_mistyped_columns_are_named(spark: SparkSession) -> None:
    with pytest.raises(ValueError, match="need a column 'src'; these have a, b"):
        event_columns(spark.createDataFrame([(1, 2)], "a int, b int"))
    wrong = spark.sql("select 1.0D as src, 2 as op, 'now' as time, 1.5D as value")
    with pytest.raises(TypeError) as error:
        event_columns(wrong)
    assert str(error.value) == (
        "the column 'op' is int, but should be a string; "
        "the column 'src' is double, but should be an integer or a string; "
        "the column 'value' is double, but should be an array of numbers; "
        "the column 'time' is string, but should be an integer or a timestamp (to_timestamp reads strings)"
    )


# ------------------------------------------------------------------ good and bad


def agrees(spark: SparkSession, tables: list[pa.Table], schema: GraphSchema) -> set[int]:
    """Compare `validate` with `check`, row by row; returns the reasons that occurred."""
    expected: list[int] = []
    numbered = []
    for table in tables:
        begin = len(expected)
        expected += check(EventBatch.from_arrow(table), schema).tolist()
        numbered.append(table.append_column("row", pa.array(np.arange(begin, len(expected)))))
    if not expected:
        return set()
    table = pa.concat_tables(numbered, promote_options="permissive")
    good, bad = validate(spark.createDataFrame(table), schema)
    got = {row.row: None for row in good.select("row").collect()}
    got |= {row.row: row.reason for row in bad.select("row", "reason").collect()}
    want = {i: Reason(reason).text if reason else None for i, reason in enumerate(expected)}
    assert got == want
    return set(expected)


def as_table(events: list[Event]) -> pa.Table:
    """The events as they are written, unknown names and all."""
    columns = dict(zip(Event._fields, zip(*events, strict=True), strict=True))
    arrays = {name: pa.array(column) for name, column in columns.items()}
    arrays["time"] = arrays["time"].cast(pa.int64())
    if pa.types.is_null(arrays["value"].type):
        del arrays["value"]
    return pa.table(arrays)


@settings(max_examples=8, phases=[Phase.generate])  # shrinking takes minutes here
@given(data=st.data())
def test_validate_agrees_with_check_on_small_streams(spark: SparkSession, data: st.DataObject) -> None:
    expiring = schemas(edges=("simple", "multi", "keyed"), expiry=True)
    schema = data.draw(schemas() | expiring)
    ids: Ids = data.draw(st.sampled_from(["int", "str"]))
    batches = [b for b in data.draw(event_batches(schema, ids, max_batches=1, max_events=60)) if b]
    agrees(spark, [as_table(batch) for batch in batches], schema)


@pytest.mark.parametrize("edges", ["simple", "keyed", "append"])
def test_validate_agrees_with_check_on_large_streams(spark: SparkSession, edges: Any) -> None:
    on_edges = {} if edges == "append" else {"w": 1}
    schema = GraphSchema(edges=edges, features={"x": 2, "y": 1}, edge_features=on_edges)
    batches = random_batches(schema, 1, 2, 500, 40, ids="str", bad=0.2)
    assert len(agrees(spark, [batch.to_arrow() for batch in batches], schema)) >= 3


@pytest.mark.parametrize(
    "schema",
    [
        GraphSchema(),
        GraphSchema(edges="append", features={"x": 2, "w": 1}, label_width=2),
        GraphSchema(edges="keyed", features={"y": 1}, edge_features={"w": 2}),
        GraphSchema(edges="multi", features={"w": 1, "y": 2}, edge_features={"x": 1, "w": 2}),
    ],
    ids=lambda schema: schema.edges,
)
def test_validate_agrees_with_check_on_every_combination(spark: SparkSession, schema: GraphSchema) -> None:
    choices: dict[str, list[Any]] = {
        "op": ["create", "update", "delete", "destroy", None],
        "element": ["vertex", "edge", "feature", "edge_feature", "label", "query", "hyperedge", None],
        "src": [1, None],
        "dst": [2, None],
        "key": [0, None],
        "feature": [None, "x", "w", "nope"],
        "value": [None, [], [1.0], [1.0, 2.0], [np.nan], [1.0, None], [-np.inf, 1.0], [1e39]],
        "time": [0, None, -(2**63)],
    }
    columns = zip(*product(*choices.values()), strict=True)
    table = pa.table({name: pa.array(column) for name, column in zip(choices, columns, strict=True)})
    in_the_graph = {
        Reason.REPEATED,
        Reason.LATE,
        Reason.NO_SUCH_VERTEX,
        Reason.NO_SUCH_EDGE,
        Reason.WRONG_ID_TYPE,
        Reason.NO_ANSWER,
    }
    seldom = {Reason.MISSING_KEY, Reason.UNEXPECTED_KEY, Reason.APPEND_ONLY}
    seldom |= {Reason.ID_TOO_LONG, Reason.TOO_FAR_AHEAD, Reason.TOO_LARGE, Reason.WRONG_TTL}
    assert set(Reason) - in_the_graph - seldom <= agrees(spark, [table], schema)


def test_validate_agrees_with_check_on_limits(spark: SparkSession) -> None:
    now, day, long = 1_767_225_600_000_000, 86_400_000_000, "é" * 513
    events = [
        Event("create", "feature", "a", value=[x], time=time, arrival=arrival)
        for x in (1.0, -2.0)
        for time in (-5, now, now + day, now + day + 1, 2**63 - 1)
        for arrival in (0, now)
    ]
    events += [Event("create", "edge", u, v, time=0, arrival=0) for u in ("a", long) for v in ("b", long)]
    events.append(Event("create", "vertex", "a", long, time=0, arrival=0))
    found = agrees(spark, [as_table(events)], GraphSchema(features={"x": 1}, max_abs=1.0))
    assert found == {Reason.APPLIED, Reason.ID_TOO_LONG, Reason.TOO_FAR_AHEAD, Reason.TOO_LARGE}


@pytest.mark.parametrize("lifetimes", [{}, {"ttl": 5}, {"ttl": 5, "vertex_ttl": 5}], ids=len)
def test_validate_agrees_with_check_on_lifetimes(spark: SparkSession, lifetimes: dict[str, Any]) -> None:
    choices: list[list[Any]] = [
        ["create", "update", "delete", None], ["vertex", "edge", "edge_feature", "query", "hyperedge"],
        [None, -1, 0, 5],
    ]  # fmt: skip
    op, element, ttl = zip(*product(*choices), strict=True)
    ends = {"src": [1] * len(op), "dst": [2] * len(op)}
    table = pa.table({"op": op, "element": element, **ends, "ttl": ttl})
    assert Reason.WRONG_TTL in agrees(spark, [table], GraphSchema(**lifetimes))


# ------------------------------------------------------------------ output tables


def test_the_latest_row_of_each_id(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    schema = (
        "id string, embedding array<float>, time long, arrival long, batch_id long, model_version long,"
        " deleted boolean"
    )
    first = [(id, [0.0], 1, None, 0, 1, False) for id in ("a", "b", "c")]
    second = [("b", [1.0], 2, 2, 1, 1, False), ("c", None, 2, 2, 1, 1, True), ("a", None, 2, 2, 1, 1, True)]
    third = [("a", [2.0], 3, 3, 2, 1, False)]
    for written in (third, first, second):  # files are read in any order
        spark.createDataFrame(written, schema).coalesce(1).write.mode("append").parquet(path)
    newest = latest(spark, path)
    assert newest.schema.simpleString() == spark.read.parquet(path).schema.simpleString()
    plan = newest.where("id = 'a'")._jdf.queryExecution().executedPlan().toString()
    assert "PushedFilters: [IsNotNull(id), EqualTo(id,a)]" in plan, "the filter does not reach the files"
    assert sorted(rows(newest)) == [("a", [2.0], 3, 3, 2, 1, False), ("b", [1.0], 2, 2, 1, 1, False)]


def test_other_tables_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    spark.createDataFrame([(1, date(2024, 1, 1))], "id int, day date").write.parquet(str(tmp_path / "t"))
    with pytest.raises(
        ValueError, match="no column embedding, time, arrival, batch_id, model_version, deleted"
    ):
        latest(spark, str(tmp_path / "t"))


def test_the_latest_rows_of_a_table_of_vertices_and_pairs(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    schema = (
        "id string, embedding array<float>, src string, dst string, score float, is_query boolean,"
        " time timestamp, arrival timestamp, batch_id long, model_version long, deleted boolean"
    )
    common = (None, None, 0, 1, False)
    written = [
        ("a", [1.0], None, None, None, None, *common),
        ("b", [2.0], None, None, None, None, *common),
        (None, None, "a", "b", 0.5, False, *common),
        (None, None, "a", "b", None, False, *common[:2], 1, 1, True),
        (None, None, "a", "b", 0.75, False, *common[:2], 1, 1, False),
        (None, None, "b", "a", 0.1, True, *common),
        ("b", [0.0], None, None, None, None, *common[:2], 1, 1, True),
    ]
    spark.createDataFrame(written, schema).write.parquet(path)
    newest = {(row.id, row.src, row.dst, row.score) for row in latest(spark, path).collect()}
    assert newest == {("a", None, None, None), (None, "a", "b", 0.75)}
