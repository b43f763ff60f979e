"""Events as Spark DataFrames, batch or streaming: made from edge lists, checked, and brought into one shape.

All of it is column expressions, which Spark compiles into the plan: no Python runs for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from d3gnn.events import DEFAULT_FEATURE, NO_TIME, Element, GraphSchema, Op, Reason

__all__ = ["EVENT_COLUMNS", "event_columns", "from_edges", "from_queries", "latest", "validate"]

#: The columns of an event, in the order in which `event_columns` gives them.
EVENT_COLUMNS = (
    "op", "element", "src", "dst", "key", "feature", "value", "time", "arrival", "partition", "offset",
)  # fmt: skip
OUTPUT_COLUMNS = ("id", "embedding", "time", "arrival", "batch", "model_version", "deleted")
PAIR_COLUMNS = ("src", "dst", "score", "asked", "time", "arrival", "batch", "model_version", "deleted")

_MICROS_PER_DAY = 86_400_000_000
_INTEGERS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_NUMBERS = (*_INTEGERS, T.FloatType, T.DoubleType, T.DecimalType)
_VERTEX, _EDGE = ("vertex", "feature"), ("edge", "edge_feature")
_OPS = [op.name.lower() for op in Op]
_ELEMENTS = [element.name.lower() for element in Element]

_Convert = Callable[[Column, T.DataType], "Column | str"]


# ------------------------------------------------------------------ edge lists


def from_edges(
    df: DataFrame,
    src: str = "src",
    dst: str = "dst",
    ts: str | None = None,
    op: str | None = None,
    key: str | None = None,
    value: str | None = None,
    feature: str | None = None,
    arrival: str | None = None,
) -> DataFrame:
    """Events of edges, from a DataFrame with a row for each edge; the arguments name its columns.

    src, dst, key:
        Integers stay integers; everything else that has a text becomes a string, both ends if either is one.
    ts, arrival:
        Timestamps become microseconds; integers stay as they are. Without `ts` all events are of time 0.
    op:
        `create`, `update` or `delete`; without it, every row creates an edge.
    value, feature:
        A number, or an array of numbers, and the name of the edge feature that it sets.
    """
    given = {
        "op": op,
        "src": src,
        "dst": dst,
        "key": key,
        "feature": feature,
        "value": value,
        "time": ts,
        "arrival": arrival,
    }
    columns = {name: F.col(column).alias(name) for name, column in given.items() if column is not None}
    edges = df.select(*columns.values())
    types = {field.name: field.dataType for field in edges.schema}
    converters = _EDGE_LIST | dict.fromkeys(("src", "dst"), _one_type(types["src"], types["dst"]))
    found = _convert(edges, converters, {name: column or name for name, column in given.items()})
    # All that an event needs, so that it is whole among others, too.
    found = {"op": F.lit("create"), "element": F.lit("edge"), "time": F.lit(0).cast("bigint")} | found
    return edges.select(*(found[name].alias(name) for name in EVENT_COLUMNS if name in found))


def from_queries(
    df: DataFrame, src: str = "src", dst: str = "dst", ts: str | None = None, arrival: str | None = None
) -> DataFrame:
    """Queries, from a DataFrame with a row for each pair that is asked for; the arguments name its columns.

    Put them among the events that change the graph: `events.unionByName(queries, allowMissingColumns=True)`.
    """
    return from_edges(df, src, dst, ts, arrival=arrival).withColumn("element", F.lit("query"))


def _one_type(*types: T.DataType) -> _Convert:
    """Both ends of an edge as integers, or both as strings."""
    texts = not all(isinstance(t, _INTEGERS) for t in types)

    def convert(column: Column, dtype: T.DataType) -> Column | str:
        id = _id_or_text(column, dtype)
        return id.cast("string") if texts and isinstance(id, Column) else id

    return convert


def _id_or_text(column: Column, dtype: T.DataType) -> Column | str:
    if isinstance(dtype, T.FloatType | T.DoubleType):
        return "an integer or a string (cast it: a floating-point id is not exact)"
    if isinstance(dtype, T.ArrayType | T.MapType | T.StructType | T.BinaryType | T.VariantType):
        return "an integer or a string"
    return column.cast("bigint" if isinstance(dtype, _INTEGERS) else "string")


def _number_or_list(column: Column, dtype: T.DataType) -> Column | str:
    if isinstance(dtype, _NUMBERS):
        return F.when(column.isNotNull(), F.array(column.cast("float")))
    found = _value(column, dtype)
    return "a number or an array of numbers" if isinstance(found, str) else found


# ------------------------------------------------------------------ one shape


def event_columns(df: DataFrame) -> DataFrame:
    """The events with all columns of the event format, of fixed types, and no others.

    `op`, `element` and `feature` are strings, `src`, `dst` and `key` bigint or string, `value` array<float>,
    the rest bigint. What is absent gets its default: an event creates, an edge if there is a column `dst`,
    else a vertex, at time 0.
    """
    columns = _normal(df)
    return df.select(*(columns[name].alias(name) for name in EVENT_COLUMNS))


def _normal(df: DataFrame) -> dict[str, Column]:
    """The event format's columns as expressions over the DataFrame."""
    if "src" not in df.columns:
        raise ValueError(f"events need a column 'src'; these have {', '.join(df.columns) or 'none'}")
    found = _convert(df, _EVENTS, {name: name for name in EVENT_COLUMNS})
    ids = "string" if isinstance(df.schema["src"].dataType, T.StringType) else "bigint"
    types = {"dst": ids, "feature": "string", "value": "array<float>"}
    defaults = {
        "op": F.lit("create"),
        "element": F.lit("edge" if "dst" in df.columns else "vertex"),
        "time": F.lit(0).cast("bigint"),
    }
    empty = {name: F.lit(None).cast(types.get(name, "bigint")) for name in EVENT_COLUMNS}
    return empty | defaults | found


def _convert(df: DataFrame, how: Mapping[str, _Convert], names: Mapping[str, str]) -> dict[str, Column]:
    """The columns that are there, converted; raises TypeError that names all that cannot be."""
    found, wrong = {}, []
    for name, convert in how.items():
        if name not in df.columns:
            continue
        dtype = df.schema[name].dataType
        column = convert(F.col(name), dtype)
        if isinstance(column, Column):
            found[name] = column
        else:
            wrong.append(f"the column {names[name]!r} is {dtype.simpleString()}, but should be {column}")
    if wrong:
        raise TypeError("; ".join(wrong))
    return found


def _string(column: Column, dtype: T.DataType) -> Column | str:
    return column.cast("string") if isinstance(dtype, T.StringType | T.NullType) else "a string"


def _id(column: Column, dtype: T.DataType) -> Column | str:
    if isinstance(dtype, T.StringType):
        return column.cast("string")
    return column.cast("bigint") if isinstance(dtype, (*_INTEGERS, T.NullType)) else "an integer or a string"


def _integer(column: Column, dtype: T.DataType) -> Column | str:
    return column.cast("bigint") if isinstance(dtype, (*_INTEGERS, T.NullType)) else "an integer"


def _time(column: Column, dtype: T.DataType) -> Column | str:
    if isinstance(dtype, T.TimestampType):
        return F.unix_micros(column)
    if isinstance(dtype, T.TimestampNTZType):  # without a time zone it counts as UTC, as Arrow has it
        return F.timestamp_diff("MICROSECOND", F.lit("1970-01-01").cast("timestamp_ntz"), column)
    if isinstance(dtype, T.DateType):
        return F.unix_date(column).cast("bigint") * _MICROS_PER_DAY
    found = _integer(column, dtype)
    return "an integer or a timestamp (to_timestamp reads strings)" if isinstance(found, str) else found


def _value(column: Column, dtype: T.DataType) -> Column | str:
    is_list = isinstance(dtype, T.ArrayType) and isinstance(dtype.elementType, (*_NUMBERS, T.NullType))
    return column.cast("array<float>") if is_list or isinstance(dtype, T.NullType) else "an array of numbers"


_EVENTS: dict[str, _Convert] = {
    "op": _string,
    "element": _string,
    "src": _id,
    "dst": _id,
    "key": _id,
    "feature": _string,
    "value": _value,
    "time": _time,
    "arrival": _time,
    "partition": _integer,
    "offset": _integer,
}
_EDGE_LIST = _EVENTS | {"key": _id_or_text, "value": _number_or_list}


# ------------------------------------------------------------------ good and bad


def validate(df: DataFrame, schema: GraphSchema) -> tuple[DataFrame, DataFrame]:
    """The events that are good in themselves, and the bad ones with the reason in a column `reason`.

    The rows stay as they came in. The pipeline does the same by itself: this is for those who want bad events
    out of the way earlier, or in a table of their own.
    """
    reason = _reason(_normal(df), schema)
    judged = df.withColumn("reason", reason)
    bad = judged.where(F.col("reason").isNotNull())
    return df.where(reason.isNull()), bad


def _reason(event: Mapping[str, Column], schema: GraphSchema) -> Column:
    """The first reason why an event is bad, in the order of `d3gnn.events.check`; null for a good one."""
    op, element, value = event["op"], event["element"], event["value"]
    is_edge, asks = element.isin(*_EDGE), element == "query"
    about_values = ~element.isin("vertex", "edge", "query")
    deletes = op == "delete"
    needs_value = (about_values & ~deletes) | (~about_values & (op == "update"))
    width = F.coalesce(F.size(value), F.lit(0))
    has_value = width > 0
    declared = _declared_width(element, event["feature"], schema)
    reasons = [
        (op.isNull() | ~op.isin(*_OPS) | (asks & (op != "create")), Reason.UNKNOWN_OPERATION),
        (element.isNull() | ~element.isin(*_ELEMENTS), Reason.UNKNOWN_ELEMENT),
        (event["time"].isNull() | (event["time"] == NO_TIME), Reason.NULL_TIME),
        (event["src"].isNull() | ((is_edge | asks) & event["dst"].isNull()), Reason.NULL_ID),
        (is_edge & event["key"].isNull(), Reason.MISSING_KEY)
        if schema.edges == "keyed"
        else (is_edge & event["key"].isNotNull(), Reason.UNEXPECTED_KEY),
    ]
    if schema.edges == "append":
        reasons.append((is_edge & ((op != "create") | (element == "edge_feature")), Reason.APPEND_ONLY))
    reasons += [
        ((needs_value | has_value | about_values) & ~asks & declared.isNull(), Reason.UNKNOWN_FEATURE),
        (needs_value & ~has_value, Reason.MISSING_VALUE),
        (has_value & (deletes | asks), Reason.UNEXPECTED_VALUE),
        (has_value & (width != declared), Reason.WRONG_WIDTH),
        (has_value & F.exists(value, _is_not_finite), Reason.NOT_FINITE),
    ]
    texts = [F.when(bad, F.lit(why.text)) for bad, why in reasons]
    return F.coalesce(*texts)


def _declared_width(element: Column, feature: Column, schema: GraphSchema) -> Column:
    """How wide the schema wants the event's value; null if it declares no such feature."""
    on_vertex = _width_of(feature, schema.features)
    on_edge = _width_of(feature, schema.edge_features)
    width = F.when(element.isin(*_VERTEX), on_vertex).when(element.isin(*_EDGE), on_edge)
    return width.when(element == "label", F.lit(schema.label_width))


def _width_of(feature: Column, declared: Mapping[str, int]) -> Column:
    """As in `feature_index`: no name is `x`, or the only feature that is declared."""
    only = next(iter(declared)) if len(declared) == 1 else None
    name = F.coalesce(feature, F.lit(DEFAULT_FEATURE if DEFAULT_FEATURE in declared else only))
    unknown = F.lit(None).cast("int")
    return reduce(
        lambda rest, item: F.when(name == item[0], F.lit(item[1])).otherwise(rest), declared.items(), unknown
    )


def _is_not_finite(number: Column) -> Column:
    return number.isNull() | F.isnan(number) | (F.abs(number) == float("inf"))


# ------------------------------------------------------------------ output tables


def latest(spark: SparkSession, path: str) -> DataFrame:
    """An output table (a folder of Parquet files) as one row per id, the newest, without the deleted ones.

    A table of scores becomes one row per edge; answers to queries are left out.
    """
    table = spark.read.parquet(path)
    of_pairs = "asked" in table.columns
    expected = PAIR_COLUMNS if of_pairs else OUTPUT_COLUMNS
    if missing := [name for name in expected if name not in table.columns]:
        raise ValueError(f"{path} is no output table of a pipeline: it has no column {', '.join(missing)}")
    row = F.struct(*(F.col(f"`{name}`") for name in table.columns))
    if of_pairs:
        table, names = table.where(~F.col("asked")), ["src", "dst"]
    else:
        names = ["id"]
    # An edge that went and came again in one batch has two rows: it is there.
    newest = table.groupBy(*names).agg(F.max_by(row, F.struct("batch", ~F.col("deleted"))).alias("row"))
    return newest.where(~F.col("row.deleted")).select("row.*")
