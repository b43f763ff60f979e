"""For any use of the output, every batch is applied once, and no loss is silent."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from d3gnn import GraphSchema
from d3gnn.events import delete_vertex, edge
from d3gnn.kernel.mapped_state import MappedPartState
from d3gnn.runtime.metrics import metrics
from d3gnn.testing import random_batches
from d3gnn.testing.pipelines import PipelineRun

SCHEMA = GraphSchema(features={"x": 3})
ADAPTIVE = "spark.sql.adaptive.enabled"

Callback = Callable[[DataFrame, int], None]


@pytest.fixture
def run(spark: SparkSession, tmp_path: Path) -> PipelineRun:
    made = PipelineRun(spark, tmp_path, SCHEMA)
    made.write(*random_batches(SCHEMA, seed=7, n_batches=3, batch_size=40, n_vertices=20))
    return made


@pytest.fixture
def not_adaptive(spark: SparkSession) -> Iterator[None]:
    """A session of a user who has switched adaptive execution off."""
    spark.conf.set(ADAPTIVE, "false")
    yield
    spark.conf.set(ADAPTIVE, "true")


def for_each_batch(run: PipelineRun, callback: Callback) -> None:
    run.start_query(run.embeddings().writeStream.foreachBatch(callback)).awaitTermination()


# ---------------------------------------------------------------------- foreachBatch


def rows_of(output: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((row.id, row.batch_id, row.deleted, tuple(row.embedding)) for row in output.collect())


def test_two_actions_and_a_self_union_apply_a_batch_once(run: PipelineRun) -> None:
    first: dict[int, list[Any]] = {}
    second: dict[int, list[Any]] = {}
    union: dict[int, list[Any]] = {}

    def callback(output: DataFrame, batch: int) -> None:
        first[batch] = rows_of(output)
        second[batch] = rows_of(output)
        union[batch] = rows_of(output.union(output))

    for_each_batch(run, callback)
    run.check_state()
    assert first == second
    assert union == {batch: sorted(2 * rows) for batch, rows in first.items()}
    assert sum(map(len, first.values())) > 0


@pytest.mark.parametrize(
    "callback",
    [
        pytest.param(lambda output, batch: None, id="without an action"),
        pytest.param(lambda output, batch: output.take(1), id="that takes one row"),
        pytest.param(
            lambda output, batch: output.where("batch_id = 1").count(), id="that looks at one batch"
        ),
    ],
)
def test_a_callback(run: PipelineRun, callback: Callback) -> None:
    for_each_batch(run, callback)
    run.check_state()


def test_a_callback_that_fails_is_called_again_with_the_same_rows(run: PipelineRun) -> None:
    rows: dict[int, list[Any]] = {}

    def fail(output: DataFrame, batch: int) -> None:
        rows[batch] = rows_of(output)
        if batch == 1:
            raise ValueError("not today")

    def compare(output: DataFrame, batch: int) -> None:
        assert batch not in rows or rows[batch] == rows_of(output)

    with pytest.raises(StreamingQueryException, match="not today"):
        for_each_batch(run, fail)
    for_each_batch(run, compare)
    run.check_state()


def test_a_callback_that_fails_in_a_refresh_is_called_again_with_everything(run: PipelineRun) -> None:
    for_each_batch(run, lambda output, batch: None)
    shutil.rmtree(run.gnn.arrays or "")
    run.write([edge(1, 2, time=200), delete_vertex(3, time=200)])
    seen: list[list[Any]] = []

    def fail_once(output: DataFrame, batch: int) -> None:
        seen.append(rows_of(output))
        if len(seen) == 1:
            raise ValueError("not today")

    with pytest.raises(StreamingQueryException, match="not today"):
        for_each_batch(run, fail_once)
    for_each_batch(run, fail_once)
    assert seen[0] == seen[1]
    assert {id for id, _, deleted, _ in seen[1] if not deleted} == set(run.checker.oracle.vertices)
    run.check_state()


def test_two_actions_and_a_self_union_refresh_once(run: PipelineRun) -> None:
    for_each_batch(run, lambda output, batch: None)
    run.gnn.refresh()
    run.write([edge(1, 2, time=200), delete_vertex(3, time=200)])
    seen: list[list[Any]] = []

    def callback(output: DataFrame, batch: int) -> None:
        seen.append(rows_of(output))
        seen.append(rows_of(output))
        seen.append(rows_of(output.union(output)))
        output.limit(1).collect()

    query = run.start_query(run.embeddings().writeStream.foreachBatch(callback))
    query.awaitTermination()
    first, second, union = seen
    assert first == second
    assert union == sorted(2 * first)
    assert {id for id, _, deleted, _ in first if not deleted} == set(run.checker.oracle.vertices)
    assert sum(metrics(progress)["partition"].get("refreshed", 0) for progress in query.recentProgress) == 1
    epoch, batch = MappedPartState(next(Path(run.gnn.arrays or "").glob("*/partition/0"))).version
    assert (epoch, batch) == (1, 4), "one refresh"
    run.check_state()


# ---------------------------------------------------------------------- operators on the output


def with_time(output: DataFrame) -> DataFrame:
    """Every batch is two minutes later, so that the watermark moves on and causes batches without data."""
    return output.withColumn("at", F.timestamp_seconds(F.col("batch_id") * 120)).withWatermark(
        "at", "1 minute"
    )


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda output: output.where("id = 1").select("embedding"), id="a filter"),
        pytest.param(lambda output: output.limit(2), id="a limit"),
        pytest.param(
            lambda output: with_time(output).dropDuplicatesWithinWatermark(["id"]), id="a watermark"
        ),
        pytest.param(lambda output: output.union(output.where("deleted")), id="a self-union"),
    ],
)
def test_operators_on_the_output_do_not_change_what_is_applied(
    run: PipelineRun, change: Callable[[DataFrame], DataFrame]
) -> None:
    run.start_query(change(run.embeddings()).writeStream.format("noop")).awaitTermination()
    run.check_state()


# ---------------------------------------------------------------------- without adaptive execution


def test_without_adaptive_execution_a_table_is_exact(run: PipelineRun, not_adaptive: None) -> None:
    run.process_available()
    run.check()


def test_without_adaptive_execution_a_dataframe_is_refused(run: PipelineRun, not_adaptive: None) -> None:
    # There, a callback without an action would commit batches that no operator saw.
    with pytest.raises(ValueError, match=re.escape(ADAPTIVE)):
        run.embeddings()


def skip_one(output: DataFrame, batch: int) -> None:
    if batch != 1:
        output.count()


def test_a_batch_that_no_operator_processed_is_reported(run: PipelineRun, spark: SparkSession) -> None:
    output = run.embeddings()
    spark.conf.set(ADAPTIVE, "false")  # too late for a refusal
    try:
        query = run.start_query(output.writeStream.foreachBatch(skip_one))
    finally:
        spark.conf.set(ADAPTIVE, "true")
    with pytest.raises(StreamingQueryException, match=r"no entry for batch 1,.*foreachBatch"):
        query.awaitTermination()


def test_a_batch_that_no_operator_processed_before_an_operator_with_state(run: PipelineRun) -> None:
    # A stateful operator switches adaptive execution off. Spark fails, after it has committed the batch.
    output = run.embeddings().dropDuplicates(["id", "batch_id"])
    for message in ("awaitResult", "no entry for batch 1"):
        with pytest.raises(StreamingQueryException, match=message):
            run.start_query(output.writeStream.foreachBatch(skip_one)).awaitTermination()


# ---------------------------------------------------------------------- stop and start


def test_stop_in_the_middle_of_a_batch_and_start_at_once(spark: SparkSession, tmp_path: Path) -> None:
    run = PipelineRun(spark, tmp_path, SCHEMA)
    run.write(*random_batches(SCHEMA, seed=5, n_batches=8, batch_size=40, n_vertices=20))
    log = tmp_path / "store" / "log"
    for wanted in (1, 3, 4, 6):
        running = run.start(availableNow=None, restarts=9)
        deadline = time.monotonic() + 120
        # Right after Partition has committed a batch, the other operators are in the middle of it.
        while len(list(log.glob("*.parquet"))) < wanted:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        running.stop()
    run.process_available(restarts=9)
    run.check()
