"""Output tables stay small, and readers find the same rows; dead letters are a table from the start."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession
from typer.testing import CliRunner

from d3gnn import GraphSchema, compact_output, latest
from d3gnn.cli import app
from d3gnn.events import Key, edge, feature
from d3gnn.oracle import embeddings
from d3gnn.testing import random_batches
from d3gnn.testing.pipelines import PipelineRun
from d3gnn.testing.table_checker import committed_files, newest_rows

SCHEMA = GraphSchema(features={"x": 3})


def plan_of(frame: DataFrame) -> str:
    plan: str = frame._jdf.queryExecution().executedPlan().toString()
    return plan


def same(spark: SparkSession, run: PipelineRun, expected: Mapping[Key, Any]) -> bool:
    return {row.id: row.embedding for row in latest(spark, run.output).collect()} == expected


def test_a_compacted_table_beside_a_growing_one(spark: SparkSession, tmp_path: Path) -> None:
    run = PipelineRun(spark, tmp_path, SCHEMA, 2)
    batches = random_batches(SCHEMA, seed=8, n_batches=11, batch_size=20, n_vertices=20, delete_vertex=0.2)
    run.write([edge(1, 2, time=0)])
    run.process_available()
    empty = spark.read.parquet(f"{run.gnn.store}/dead_letters")
    assert (empty.count(), empty.columns[-2:]) == (0, ["reason", "batch"])

    run.write(*batches[:10])  # more than ten files: Spark's log of the table has a compact one
    run.process_available()
    every_row = newest_rows(run.output)
    assert same(spark, run, every_row)

    first = compact_output(spark, run.output)
    assert (first.batch, first.rows, len(first.files)) == (
        10,
        len(every_row),
        len(committed_files(run.output)),
    )
    assert same(spark, run, every_row)
    one = next(iter(every_row))
    alone = latest(spark, run.output).where(f"id = {one}")
    assert [row.embedding for row in alone.collect()] == [every_row[one]]

    running = run.start(processingTime="0 seconds")  # a query may run meanwhile
    run.write(batches[10], [feature(1, [1.0], time=99)])  # of a wrong width
    running.processAllAvailable()
    letters = spark.read.parquet(f"{run.gnn.store}/dead_letters")
    assert letters.columns == empty.columns
    assert [tuple(row) for row in letters.where("batch = 12").select("src", "dst").collect()] == [(1, None)]
    every_row = newest_rows(run.output)
    assert same(spark, run, every_row)
    both = latest(spark, run.output).where(f"id = {one}")
    assert plan_of(both).count(f"EqualTo(id,{one})") == 2, "a filter does not reach all files"
    second = compact_output(spark, run.output, delete_history=True)
    kept = [path for path in committed_files(run.output) if path.exists()]
    assert {path.name for path in kept} == set(second.files) - set(first.files)
    assert same(spark, run, every_row)
    command = ["compact-output", str(run.output), "--delete-history", "--now", "--json"]
    done = CliRunner().invoke(app, command)
    assert (done.exit_code, json.loads(done.stdout)["rows"]) == (0, second.rows)
    assert not [path for path in kept if path.exists()]
    assert same(spark, run, every_row)

    run.gnn.refresh()
    run.write([feature(2, [1.0, 2.0, 3.0], time=100)])
    running.processAllAvailable()
    running.stop()
    expected = embeddings(run.gnn.model, run.checker.oracle)
    found = {row.id: row.embedding for row in latest(spark, run.output).collect()}
    assert set(found) == set(expected)
    for id, embedding in expected.items():
        np.testing.assert_allclose(found[id], embedding, atol=1e-5)


def test_nothing_to_compact_is_said(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="has no files of an output table yet"):
        compact_output(spark, tmp_path / "none")
