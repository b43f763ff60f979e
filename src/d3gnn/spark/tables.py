"""Reading the tables that pipelines write."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

__all__ = ["latest"]

_COMMON = ("time", "arrival", "batch_id", "model_version", "deleted")
_VERTEX, _PAIR = ("id", "embedding"), ("src", "dst", "score", "is_query")


def latest(spark: SparkSession, path: str) -> DataFrame:
    """The newest row of each vertex, and of each scored edge, in an output table; without deleted ones.

    The table is a folder of Parquet files that `StreamingGNN.start` wrote. Answers to queries are left out.

        d3gnn.latest(spark, "embeddings").where("id = 'ann'").show()
    """
    table = spark.read.parquet(path)
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
    return newest.where(~F.col("row.deleted")).select("row.*")
