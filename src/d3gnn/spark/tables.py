"""Reading the tables that pipelines write, and keeping them small."""

from __future__ import annotations

import os
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from d3gnn.store.compacted_table import Compaction, OutputTable

__all__ = ["compact_output", "latest"]

_COMMON = ("time", "arrival", "batch_id", "model_version", "deleted")
_VERTEX, _PAIR = ("id", "embedding"), ("src", "dst", "score", "is_query")
#: The compactions that are kept: the newest, and the one that readers may have begun to read.
_KEPT = 2


def latest(spark: SparkSession, path: str | os.PathLike[str]) -> DataFrame:
    """The newest row of each vertex, and of each scored edge, in an output table; without deleted ones.

    The table is a folder of Parquet files that `StreamingGNN.start` wrote. Answers to queries are left out.

        d3gnn.latest(spark, "embeddings").where("id = 'ann'").show()

    Filters on `id` (on `src` and `dst`, for pairs) are pushed down to the files. With many batches, most of
    the time is for opening their files: `compact_output` writes the newest rows beside them, and `latest`
    reads these and the files that came later.
    """
    table = OutputTable(path)
    return _newest(_rows(spark, table, table.newest_compaction()), table.path)


def compact_output(
    spark: SparkSession, path: str | os.PathLike[str], *, delete_history: bool = False, now: bool = False
) -> Compaction:
    """Write the newest row of each id of an output table beside it, for `latest`; returns what was written.

    The query may run meanwhile: its files, and Spark's log of them, do not change. Deleted ids and answers to
    queries are not in the compacted table.

    delete_history:
        Delete the files that the compaction before this one includes. Their rows are history, which
        `latest` does not read. Other readers of the folder then need Spark's option `ignoreMissingFiles`.
    now:
        Delete the files that this compaction includes, too. Readers that began before it fail.
    """
    table = OutputTable(path)
    before, made = table.newest_compaction(), table.next_compaction()
    if not made.files:
        raise FileNotFoundError(f"{table.path} has no files of an output table yet")
    if before is None or set(before.files) != set(made.files):
        newest = _newest(_rows(spark, table, before, made.files), table.path)
        keys = [F.col(name) for name in ("id", "src", "dst") if name in newest.columns]
        # Sorted, so that a filter on an id reads one file, and little of that.
        newest.orderBy(*keys).write.parquet(table.folder(made))
        made = replace(made, rows=spark.read.parquet(table.folder(made)).count())
        table.commit(made)
        table.sweep(_KEPT)
    else:
        made = before
    if delete_history:
        replaced = made if now or before is made else before
        if replaced is not None:
            table.delete(replaced.files)
    return made


def _rows(
    spark: SparkSession, table: OutputTable, compaction: Compaction | None, files: tuple[str, ...] = ()
) -> DataFrame:
    """The rows of a compaction, and of the files after it."""
    if compaction is None:
        return spark.read.parquet(table.path)
    included = set(compaction.files)
    newer = [name for name in files or table.files()[0] if name not in included]
    rows = spark.read.parquet(table.folder(compaction))
    if newer:
        rows = spark.read.parquet(*table.paths(newer)).unionByName(rows, allowMissingColumns=True)
    return rows


def _newest(table: DataFrame, path: str) -> DataFrame:
    is_pairs = "src" in table.columns and "id" not in table.columns
    expected = (_PAIR if is_pairs else _VERTEX) + _COMMON
    if missing := [name for name in expected if name not in table.columns]:
        raise ValueError(
            f"{path} is not an output table of a pipeline: it has no column {', '.join(missing)}"
        )
    row = F.struct(*(F.col(f"`{name}`") for name in table.columns))
    if "is_query" in table.columns:
        table = table.where(~F.coalesce("is_query", F.lit(False)))
    keys = [name for name in ("id", "src", "dst") if name in table.columns]
    # An edge that was deleted and created again in one batch has two rows: it exists.
    newest = table.groupBy(*keys).agg(F.max_by(row, F.struct("batch_id", ~F.col("deleted"))).alias("row"))
    # The keys as such, not those in the row: filters on them then pass the aggregation.
    columns = [F.col(name) if name in keys else F.col(f"row.`{name}`") for name in table.columns]
    return newest.where(~F.col("row.deleted")).select(*columns)
