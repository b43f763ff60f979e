"""Features and labels of vertices as events, from Spark DataFrames with a row for each vertex."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from d3gnn.spark.frames import _EDGE_LIST, _NUMBERS, EVENT_COLUMNS, _convert

__all__ = ["from_features", "from_labels"]


def from_features(
    df: DataFrame,
    id: str = "id",
    value: str | None = None,
    *,
    columns: Sequence[str] | None = None,
    ts: str | None = None,
    name: str | None = None,
    op: str | None = None,
    arrival: str | None = None,
) -> DataFrame:
    """Events that set vertex features, from a DataFrame with a row for each vertex.

    `events.unionByName(features, allowMissingColumns=True)` adds them to other events.

    id:
        Column of the vertex ids: integers stay integers, all other types become strings.
    value, columns:
        The feature: one column with a number or an array of numbers, or several columns with a number each.
    ts, arrival:
        Columns of the event time and the arrival time: timestamps, or integers, which are kept. Without `ts`
        the event time is 0.
    name:
        Name of the feature in the schema, a constant; by default `x`, or the only one that is declared.
    op:
        Column with `create`, `update` or `delete`; without it, every row is a `create`.
    """
    if (value is None) == (not columns):
        raise ValueError("give either value, one column with the feature, or columns, a list of several")
    given = {"op": op, "src": id, "time": ts, "arrival": arrival}
    if columns:
        vector = _vector(df, columns)
        found = _events(df.withColumn("value", vector), "feature", {**given, "value": "value"})
    else:
        found = _events(df, "feature", {**given, "value": value})
    return found if name is None else found.withColumn("feature", F.lit(name))


def from_labels(
    df: DataFrame,
    id: str = "id",
    value: str = "label",
    *,
    ts: str | None = None,
    op: str | None = None,
    arrival: str | None = None,
) -> DataFrame:
    """Events that set labels of vertices, from a DataFrame with a row for each label.

    The arguments name columns, as in `from_features`; `value` has a number or an array of numbers.
    """
    return _events(df, "label", {"op": op, "src": id, "value": value, "time": ts, "arrival": arrival})


def _vector(df: DataFrame, columns: Sequence[str]) -> Column:
    """The columns as one array; null where all of them are null, as in a delete."""
    wrong = [
        f"the column {column!r} is {df.schema[column].dataType.simpleString()}, but should be a number"
        for column in columns
        if not isinstance(df.schema[column].dataType, (*_NUMBERS, T.NullType))
    ]
    if wrong:
        raise TypeError("; ".join(wrong))
    numbers = [F.col(f"`{column}`").cast("float") for column in columns]
    return F.when(F.coalesce(*numbers).isNotNull(), F.array(*numbers))


def _events(df: DataFrame, element: str, given: dict[str, str | None]) -> DataFrame:
    names = {role: column for role, column in given.items() if column is not None}
    rows = df.select(*(F.col(f"`{column}`").alias(role) for role, column in names.items()))
    found = _convert(rows, {**_EDGE_LIST, "src": _EDGE_LIST["key"]}, names)
    defaults = {"op": F.lit("create"), "element": F.lit(element), "time": F.lit(0).cast("bigint")}
    columns = {**defaults, **found}
    return rows.select(*(columns[role].alias(role) for role in EVENT_COLUMNS if role in columns))
