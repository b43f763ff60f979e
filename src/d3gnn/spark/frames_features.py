"""Features, labels and deletes as events, from Spark DataFrames with a row for each vertex or edge."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from d3gnn.spark.frames import _EDGE_LIST, _NUMBERS, _convert, one_type, uniform

__all__ = ["from_deletes", "from_features", "from_labels"]


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

    `events.union(features)` adds them to other events.

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
    more = {} if name is None else {"feature": F.lit(name)}
    if columns:
        vector = _vector(df, columns)
        return _events(df.withColumn("value", vector), "feature", {**given, "value": "value"}, more)
    return _events(df, "feature", {**given, "value": value}, more)


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


def from_deletes(
    df: DataFrame,
    id: str | None = None,
    *,
    src: str | None = None,
    dst: str | None = None,
    key: str | None = None,
    ts: str | None = None,
    arrival: str | None = None,
) -> DataFrame:
    """Events that delete vertices, from a DataFrame with a row for each; or edges, with `src` and `dst`.

        closed = d3gnn.from_deletes(accounts, id="account", ts="closed_at")
        refunded = d3gnn.from_deletes(refunds, src="payer", dst="payee", ts="refunded_at")

    The arguments name columns, as in `from_features` and `from_edges`. A deleted vertex loses its edges.
    """
    if (id is None) == (src is None) or (src is None) != (dst is None):
        raise ValueError("give either id, the column of vertices, or src and dst, the columns of edges")
    delete = {"op": F.lit("delete")}
    if id is not None:
        if key is not None:
            raise ValueError("key is for edges; give src and dst")
        return _events(df, "vertex", {"src": id, "time": ts, "arrival": arrival}, delete)
    return _events(df, "edge", {"src": src, "dst": dst, "key": key, "time": ts, "arrival": arrival}, delete)


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


def _events(
    df: DataFrame, element: str, given: dict[str, str | None], more: dict[str, Column] | None = None
) -> DataFrame:
    names = {role: column for role, column in given.items() if column is not None}
    rows = df.select(*(F.col(f"`{column}`").alias(role) for role, column in names.items()))
    ids = one_type(*(rows.schema[role].dataType for role in ("src", "dst") if role in names))
    found = _convert(rows, {**_EDGE_LIST, "src": ids, "dst": ids}, names)
    return uniform(rows, element, found | (more or {}))
