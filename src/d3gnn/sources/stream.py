"""Events from files as Spark DataFrames, streaming or not."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from d3gnn.sources.files import Files, TimeUnit
from d3gnn.sources.sample import NANOSECONDS
from d3gnn.sources.text import BRACKETS, SEPARATORS

__all__ = ["cut", "stream_events", "union_events"]

_MICROSECONDS = 1_000_000
_IN_MICROSECONDS = {"s": _MICROSECONDS, "ms": 1000, "us": 1}
_ZONE = r"(?i)(z|utc|[+-]\d{2}:?\d{2})$"
_NANOS = "spark.sql.legacy.parquet.nanosAsLong"
#: Modification time of the first piece of a file that was cut; any time in the past will do.
_FIRST_PIECE = 1_000_000_000


def stream_events(spark: SparkSession, files: Files, **limits: Any) -> DataFrame:
    """The events of all files, present and future, as a stream; each file is read once.

    `limits` are Spark's for one batch: `maxFilesPerTrigger` or `maxBytesPerTrigger`. Events arrive when their
    file was last written, unless the file has a column `arrival`.
    """
    reader = spark.readStream.options(**limits)
    # By default Spark ignores files that are a week older than others, such as copies that kept their times.
    reader = reader.option("maxFileAge", "36500d")
    return _events(spark, reader, files)


def union_events(streams: Sequence[DataFrame], files: Sequence[Files]) -> DataFrame:
    """One stream of the events of several inputs; a single one stays as it is."""
    if len(streams) == 1:
        return streams[0]
    text_keys = any(dict(stream.dtypes).get("key") == "string" for stream in streams)
    completed = []
    for stream, of in zip(streams, files, strict=True):
        # A row that lacks a column has a null there, which is no default: all rows need these columns.
        usual = of.element or ("edge" if "dst" in stream.columns else "vertex")
        defaults = {"op": F.lit("create"), "element": F.lit(usual), "time": F.lit(0).cast("bigint")}
        missing = {name: column for name, column in defaults.items() if name not in stream.columns}
        if text_keys and "key" in stream.columns:
            missing["key"] = F.col("key").cast("string")
        completed.append(stream.withColumns(missing))
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), completed)


def cut(spark: SparkSession, files: Files, folder: Path, size: int) -> Files:
    """Copy a file into a folder of Parquet files with `size` events each; returns how to read these.

    A folder that is complete is kept.
    """
    events = _events(spark, spark.read, files)
    if not (folder / "_SUCCESS").exists():
        events.coalesce(1).write.mode("overwrite").option("maxRecordsPerFile", size).parquet(str(folder))
    for i, piece in enumerate(sorted(folder.glob("*.parquet"), key=_piece_number)):
        os.utime(piece, (_FIRST_PIECE + i,) * 2)  # a stream takes the oldest first
    columns = dict(events.dtypes)
    return Files(str(folder), "parquet", columns, {name: name for name in columns}, files.element, files.ids)


def _piece_number(piece: Path) -> int:
    found = re.search(r"-c(\d+)\.", piece.name)
    return int(found[1]) if found else 0


def _events(spark: SparkSession, reader: Any, files: Files) -> DataFrame:
    """The rows as events: columns by their names in the event format."""
    if NANOSECONDS in files.columns.values():
        spark.conf.set(_NANOS, "true")
    path = Path(files.path)
    if path.is_dir():
        reader, where = reader.option("recursiveFileLookup", "true"), _escaped(files.path)
    else:  # a stream takes a single file only where the path is a pattern
        where = f"{_escaped(str(path.parent))}/{_escaped(path.name[:-1])}[{path.name[-1]}]"
    rows = _text(reader, files, where) if files.format == "text" else _table(reader, files, where)
    made = {role: _column(role, name, files) for role, name in files.roles.items()}
    made.setdefault("arrival", F.unix_micros("_metadata.file_modification_time"))
    if files.values:
        numbers = [_quoted(name).cast("float") for name in files.values]
        made["value"] = F.when(F.coalesce(*numbers).isNotNull(), F.array(*numbers))
    if files.element is not None:
        made["element"] = F.lit(files.element)
    if files.format != "parquet":
        made = _without_gaps(made)
    return rows.select(*(column.alias(role) for role, column in made.items()))


def _without_gaps(made: dict[str, Column]) -> dict[str, Column]:
    """Defaults for what rows of text and JSON leave out, as for an absent column."""
    filled = {"op": F.coalesce(made.get("op", F.lit(None)), F.lit("create"))}
    if "dst" in made and "element" in made:
        usual = F.when(made["dst"].isNull(), "vertex").otherwise("edge")
        filled["element"] = F.coalesce(made["element"], usual)
    return made | filled


def _escaped(path: str) -> str:
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", path)


def _table(reader: Any, files: Files, where: str) -> DataFrame:
    reader = reader.format(files.format).schema(_ddl(files))
    if files.format == "csv":
        reader = reader.option("sep", files.delimiter).option("header", files.header)
        reader = reader.option("ignoreLeadingWhiteSpace", "true").option("ignoreTrailingWhiteSpace", "true")
        # A file with another header must not be read by position.
        reader = reader.option("enforceSchema", "false")
        if files.comment:
            reader = reader.option("comment", files.comment)
    frame: DataFrame = reader.load(where)
    return frame


def _text(reader: Any, files: Files, where: str) -> DataFrame:
    """Lines of columns between white space; Spark's CSV cannot read several blanks in a row."""
    lines: DataFrame = reader.format("text").load(where)
    line = F.trim(F.translate("value", "\t\r", "  "))
    kept = line != ""
    if files.comment:
        kept &= ~line.rlike("^[#%]")
    if files.header:
        kept &= F.translate(F.regexp_replace(line, r"\s+", " "), '"', "") != " ".join(files.columns)
    cells = F.split(line, r"\s+")
    columns = [
        F.get(cells, F.lit(i)).try_cast(kind).alias(name)
        for i, (name, kind) in enumerate(files.columns.items())
    ]
    return lines.where(kept).select(*columns, F.col("_metadata"))


def _ddl(files: Files) -> str:
    kinds = {name: "bigint" if kind == NANOSECONDS else kind for name, kind in files.columns.items()}
    return ", ".join(f"`{name.replace('`', '``')}` {kind}" for name, kind in kinds.items())


# ------------------------------------------------------------------ columns


def _quoted(name: str) -> Column:
    return F.col(f"`{name.replace('`', '``')}`")


def _column(role: str, name: str, files: Files) -> Column:
    column, kind = _quoted(name), files.columns[name]
    if role in ("src", "dst"):
        return _id(column, kind, files.ids)
    if role == "key":
        return _id(column, kind, "string" if kind == "string" else "bigint")
    if role in ("time", "arrival"):
        return _time(column, kind, files.time_unit)
    if role == "value":
        return _value(column, kind)
    if role == "op":
        return _op(column)
    return column.cast("bigint" if role in ("partition", "offset", "ttl") else "string")


def _id(column: Column, kind: str, ids: str) -> Column:
    if kind in ("float", "double"):
        column = F.when(column == F.floor(column), column.try_cast("bigint"))
    return column.try_cast(ids)


def _time(column: Column, kind: str, unit: TimeUnit) -> Column:
    """Microseconds: integers are in the unit, numbers with a fraction are seconds."""
    if kind == NANOSECONDS or (kind == "bigint" and unit == "ns"):
        return F.call_function("div", column, F.lit(1000))
    if kind in ("float", "double") or kind.startswith("decimal"):
        return F.round(column.cast("double") * _MICROSECONDS).try_cast("bigint")
    if kind == "timestamp":
        return F.unix_micros(column)
    if kind in ("timestamp_ntz", "date"):
        return _as_utc(column.cast("timestamp_ntz"))
    if kind == "string":
        in_zone = F.unix_micros(column.try_cast("timestamp"))
        return F.when(column.rlike(_ZONE), in_zone).otherwise(_as_utc(column.try_cast("timestamp_ntz")))
    return F.try_multiply(column.try_cast("bigint"), F.lit(_IN_MICROSECONDS[unit]))


def _as_utc(column: Column) -> Column:
    """Times without a zone are in UTC, not in the machine's zone."""
    return F.timestamp_diff("MICROSECOND", F.lit("1970-01-01").cast("timestamp_ntz"), column)


def _value(column: Column, kind: str) -> Column:
    """A list of numbers, a number (a list of one), or a list that is written as text."""
    if kind == "string":
        numbers = F.split(F.regexp_replace(column, BRACKETS, " "), SEPARATORS)
        column = F.filter(numbers, lambda number: number != "")
        return F.when(F.size(column) > 0, column.try_cast("array<float>"))
    if kind.startswith("array"):
        return column.cast("array<float>")
    return F.when(column.isNotNull(), F.array(column.cast("float")))


def _op(column: Column) -> Column:
    """The operation; + is create, - is delete."""
    op = F.lower(F.trim(column.cast("string")))
    return F.when(op.isin("+", "+1", "1"), "create").when(op.isin("-", "-1"), "delete").otherwise(op)
