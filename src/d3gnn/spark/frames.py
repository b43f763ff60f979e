"""Events as Spark DataFrames, batch or streaming: from edge lists, checked, and in the event format.

Everything here is column expressions, which Spark compiles into the plan. No Python code runs on rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from d3gnn.events import Element, GraphSchema, Op, Reason
from d3gnn.events.event import DEFAULT_FEATURE, NO_TIME
from d3gnn.events.limits import FIRST_REAL_CLOCK, LONGEST_ID
from d3gnn.events.neighbours import NEIGHBOURS

__all__ = ["EVENT_COLUMNS", "event_columns", "from_edges", "from_queries", "validate"]

#: The columns of the event format, in the order in which `event_columns` returns them.
EVENT_COLUMNS = (
    "op", "element", "src", "dst", "key", "feature", "value", "time", "arrival", "partition", "offset",
    "ttl",
)  # fmt: skip

#: The columns of the events that `from_edges` and its like return, each in one type.
SHARED_COLUMNS = tuple(name for name in EVENT_COLUMNS if name not in ("partition", "offset"))
_OPTIONAL = ("dst", "key", "feature", "value", "arrival", "ttl")
_ABSENT = "_d3gnn_absent"
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
    ttl: str | None = None,
) -> DataFrame:
    """Edge events from a DataFrame with a row for each edge; the arguments are names of its columns.

        edges = spark.readStream.schema("src string, dst string, ts timestamp").csv("edges/")
        events = d3gnn.from_edges(edges, ts="ts")

    src, dst, key:
        Ids: integers stay integers, all other types become strings. If one end is a string, so is the other.
    ts, arrival:
        Event time and arrival time: timestamps, or integers, which count microseconds since 1970. Without
        `ts`, all events have time 0.
    op:
        `create`, `update` or `delete`. Without it, every row creates an edge.
    ttl:
        Lifetime of an edge in microseconds, where it differs from that of the schema; see docs/expiry.md.
    value, feature:
        An edge feature, a number or an array of numbers, and its name in the schema.
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
        "ttl": ttl,
    }
    columns = {name: F.col(column).alias(name) for name, column in given.items() if column is not None}
    edges = df.select(*columns.values())
    types = {field.name: field.dataType for field in edges.schema}
    converters = _EDGE_LIST | dict.fromkeys(("src", "dst"), one_type(types["src"], types["dst"]))
    found = _convert(edges, converters, {name: column or name for name, column in given.items()})
    return uniform(edges, "edge", found)


def from_queries(
    df: DataFrame, src: str = "src", dst: str = "dst", ts: str | None = None, arrival: str | None = None
) -> DataFrame:
    """Queries from a DataFrame with a row for each pair to score; the arguments are names of its columns.

    A model with a pair head answers them, with the embeddings after their batch. Put them among the events:

        queries = d3gnn.from_queries(pairs, src="customer", dst="article")
        events = events.union(queries)
    """
    found = from_edges(df, src, dst, ts, arrival=arrival)
    absent = [name for name in absent_columns(found) if name != "element"]
    return _marked(found.withColumn("element", F.lit("query")), absent)


def uniform(df: DataFrame, element: str, found: Mapping[str, Column]) -> DataFrame:
    """These columns as events with all of `SHARED_COLUMNS`, so that events of all kinds union as they are."""
    ids = df.select(found["src"].alias("src")).dtypes[0][1]
    defaults = {
        "op": F.lit("create"),
        "element": F.lit(element),
        "dst": F.lit(None).cast(ids),
        "key": F.lit(None),  # without a type: keys are integers or strings
        "feature": F.lit(None).cast("string"),
        "value": F.lit(None).cast("array<float>"),
        "time": F.lit(0).cast("bigint"),
        "arrival": F.lit(None).cast("bigint"),
        "ttl": F.lit(None).cast("bigint"),
    }
    columns = {**defaults, **found}
    frame = df.select(*(columns[name].alias(name) for name in SHARED_COLUMNS))
    # What is the default of the event format in every row need not be carried either.
    constant = [name for name in ("op", "time") if name not in found]
    constant += ["element"] if element == "edge" and "element" not in found else []
    return _marked(frame, [*constant, *(name for name in _OPTIONAL if name not in found)])


def absent_columns(events: DataFrame) -> Sequence[str]:
    """The columns that are known to be null, or the default, in all rows: a pipeline need not carry them."""
    found: Sequence[str] = getattr(events, _ABSENT, ())
    return found


def _marked(frame: DataFrame, absent: Sequence[str]) -> DataFrame:
    # On the object: what is made of the frame later, such as a union, is another object.
    setattr(frame, _ABSENT, tuple(absent))
    return frame


def one_type(*types: T.DataType) -> _Convert:
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


# ------------------------------------------------------------------ the event format


def event_columns(df: DataFrame) -> DataFrame:
    """The events with exactly the columns of the event format, in their types; see docs/events.md.

    `op`, `element` and `feature` are strings; `src`, `dst` and `key` bigint or string; `value` array<float>;
    the others bigint, times in microseconds since 1970. Defaults fill missing columns: `op` is `create`,
    `element` is `edge` if there is a column `dst` and `vertex` if not, `time` is 0, all others are null. A
    null `op` or `element` means the same as a missing column.
    A pipeline does this to its events by itself.
    """
    if NEIGHBOURS in df.columns:
        df = _with_edges_of_vertices(df)
    columns = _normal(df)
    return df.select(*(columns[name].alias(name) for name in EVENT_COLUMNS))


def _with_edges_of_vertices(df: DataFrame) -> DataFrame:
    """A row for each neighbour of a vertex, an edge, behind the row of the vertex."""
    found, ids = _normal(df), F.col(NEIGHBOURS)
    items = df.schema[NEIGHBOURS].dataType
    if isinstance(items, T.NullType):
        return df.drop(NEIGHBOURS)
    if not isinstance(items, T.ArrayType):
        raise TypeError(f"the column {NEIGHBOURS!r} must be an array of ids, not {items.simpleString()}")
    dst = found["dst"].cast(items.elementType)
    near = F.concat(F.array(dst), F.coalesce(F.filter(ids, lambda id: id.isNotNull()), F.array().cast(items)))
    place, end = "_d3gnn_place", "_d3gnn_end"
    rows = df.select("*", F.posexplode(near).alias(place, end))
    of_edge = F.col(place) > 0
    absent = {
        name: F.when(~of_edge, F.col(name))
        for name in ("key", "feature", "value", "ttl")
        if name in df.columns
    }
    changed = absent | {"dst": F.col(end), "element": F.when(of_edge, "edge").otherwise(found["element"])}
    return rows.withColumns(changed).drop(place, end, NEIGHBOURS)


def _normal(df: DataFrame) -> dict[str, Column]:
    """The columns of the event format as expressions over the DataFrame."""
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
    for name in ("op", "element"):
        if name in found:
            found[name] = F.coalesce(found[name], defaults[name])
    return empty | defaults | found


def _convert(df: DataFrame, how: Mapping[str, _Convert], names: Mapping[str, str]) -> dict[str, Column]:
    """Those of these columns that exist, converted. A TypeError names all columns of a wrong type."""
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
    if isinstance(dtype, T.TimestampNTZType):  # without a time zone it counts as UTC, as in Arrow
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
    "ttl": _integer,
}
_EDGE_LIST = _EVENTS | {"key": _id_or_text, "value": _number_or_list}


# ------------------------------------------------------------------ good and bad


def validate(df: DataFrame, schema: GraphSchema) -> tuple[DataFrame, DataFrame]:
    """Split events into good ones, and bad ones with a column `reason`; the rows are unchanged.

        good, bad = d3gnn.events.validate(events, schema)

    A pipeline checks its events anyway, and keeps bad ones as dead letters. Use this to remove them earlier,
    or to write them to a table of your own. Errors that depend on the graph, such as deleting an edge that
    does not exist, are found by the pipeline alone.
    """
    reason = _reason(_normal(df), schema)
    bad = df.withColumn("reason", reason).where(F.col("reason").isNotNull())
    return df.where(reason.isNull()), bad


def _reason(event: Mapping[str, Column], schema: GraphSchema) -> Column:
    """The first reason why an event is bad, in the order of `events.check`; null for a good event."""
    op, element, value = event["op"], event["element"], event["value"]
    is_edge, asks = element.isin(*_EDGE), element == "query"
    about_values = ~element.isin("vertex", "edge", "query")
    deletes = op == "delete"
    needs_value = (about_values & ~deletes) | (~about_values & (op == "update"))
    width = F.coalesce(F.size(value), F.lit(0))
    has_value = width > 0
    declared = _declared_width(element, event["feature"], schema)
    reasons = [
        (~op.isin(*_OPS) | (asks & (op != "create")), Reason.UNKNOWN_OPERATION),
        (~element.isin(*_ELEMENTS), Reason.UNKNOWN_ELEMENT),
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
        (event["ttl"].isNotNull() & ~_takes_ttl(op, element, event["ttl"], schema), Reason.WRONG_TTL),
        (_is_too_long(event, is_edge, asks), Reason.ID_TOO_LONG),
        (_is_ahead(event, schema.longest_ahead), Reason.TOO_FAR_AHEAD),
    ]
    if schema.max_abs is not None:
        bound = F.lit(schema.max_abs)
        reasons.append((has_value & F.exists(value, lambda number: F.abs(number) > bound), Reason.TOO_LARGE))
    texts = [F.when(bad, F.lit(why.text)) for bad, why in reasons]
    return F.coalesce(*texts)


def _takes_ttl(op: Column, element: Column, ttl: Column, schema: GraphSchema) -> Column:
    """Whether an event may have this lifetime, as in `events.check`."""
    lives = {"edge": schema.ttl, "vertex": schema.vertex_ttl}
    expires = element.isin([name for name, lifetime in lives.items() if lifetime is not None])
    return expires & (((op == "create") & (ttl > 0)) | ((op == "delete") & (ttl == 0)))


def _declared_width(element: Column, feature: Column, schema: GraphSchema) -> Column:
    """The width of the event's value in the schema; null if the schema has no such feature."""
    on_vertex = _width_of(feature, schema.features)
    on_edge = _width_of(feature, schema.edge_features)
    width = F.when(element.isin(*_VERTEX), on_vertex).when(element.isin(*_EDGE), on_edge)
    return width.when(element == "label", F.lit(schema.label_width))


def _width_of(feature: Column, declared: Mapping[str, int]) -> Column:
    """As in `feature_index`: without a name, it is `x`, or the only feature of the schema."""
    only = next(iter(declared)) if len(declared) == 1 else None
    name = F.coalesce(feature, F.lit(DEFAULT_FEATURE if DEFAULT_FEATURE in declared else only))
    unknown = F.lit(None).cast("int")
    return reduce(
        lambda rest, item: F.when(name == item[0], F.lit(item[1])).otherwise(rest), declared.items(), unknown
    )


def _is_too_long(event: Mapping[str, Column], is_edge: Column, asks: Column) -> Column:
    used = (("src", F.lit(True)), ("dst", is_edge | asks), ("key", is_edge))
    long = (applies & (F.octet_length(event[name].cast("string")) > LONGEST_ID) for name, applies in used)
    return reduce(lambda a, b: a | b, (F.coalesce(each, F.lit(False)) for each in long))


def _is_ahead(event: Mapping[str, Column], longest: int) -> Column:
    """As `limits.are_ahead`; what has no arrival arrives now."""
    arrival = F.coalesce(event["arrival"], F.unix_micros(F.current_timestamp()))
    after = (arrival >= FIRST_REAL_CLOCK) & (event["time"] > arrival)
    return F.when(after, event["time"] - arrival > longest)


def _is_not_finite(number: Column) -> Column:
    return number.isNull() | F.isnan(number) | (F.abs(number) == float("inf"))
