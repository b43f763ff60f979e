"""Embeddings on Spark equal the oracle's, also after losses of state."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from d3gnn import GraphSchema, events
from d3gnn.nn import GraphSAGE
from d3gnn.runtime.verify import stored_plan, verify
from d3gnn.testing import random_batches
from d3gnn.testing.pipelines import PipelineRun


@pytest.mark.parametrize(("edges", "directed"), [("simple", False), ("multi", True)])
def test_equals_the_oracle(
    spark: SparkSession, tmp_path: Path, tasks: int, edges: events.EdgeMode, directed: bool
) -> None:
    schema = GraphSchema(edges=edges, directed=directed, features={"x": 3})
    run = PipelineRun(spark, tmp_path, schema, parts=3)
    run.write(*random_batches(schema, seed=1, n_batches=4, batch_size=60, n_vertices=40))
    run.process_available()
    # A restart continues where the run before ended, with any number of tasks.
    run.write([events.edge(1, 2, time=9), events.delete_vertex(3, time=9), events.edge(3, 1, time=10)])
    run.gnn.tasks = 3 - tasks
    run.process_available()
    run.check()


def test_lost_arrays_are_rebuilt_from_the_log(spark: SparkSession, tmp_path: Path) -> None:
    schema = GraphSchema(features={"x": 3})
    run = PipelineRun(spark, tmp_path, schema, 2)
    first, second, third = random_batches(schema, seed=8, n_batches=3, batch_size=60, n_vertices=40)
    run.write(first)
    run.process_available()
    (part,) = (tmp_path / "arrays").glob("*/edge-1/0")
    for file in part.iterdir():
        file.unlink()
    run.write(second)
    query = run.process_available()
    run.check()
    assert query.lastProgress is not None
    run.write(third)
    run.process_available()
    run.check()


def test_a_second_query_on_a_store_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    run = PipelineRun(spark, tmp_path, GraphSchema(features={"x": 3}), 1)
    run.write([events.edge(1, 2, time=1)])
    run.process_available()
    output = run.embeddings()
    query = output.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "other")).start()
    with pytest.raises(Exception, match="belongs to the streaming query"):
        query.awaitTermination()


def test_a_new_model_rebuilds_all_state(spark: SparkSession, tmp_path: Path) -> None:
    schema = GraphSchema(features={"x": 3})
    run = PipelineRun(spark, tmp_path, schema, 2)
    first, second = random_batches(schema, seed=8, n_batches=2, batch_size=60, n_vertices=40)
    run.write(first)
    run.process_available()
    run.set_model(GraphSAGE(3, 8, 2, 4, seed=99))
    run.write(second)
    run.process_available()
    run.check()


def test_a_new_query_ignores_the_arrays_of_an_old_one(spark: SparkSession, tmp_path: Path) -> None:
    schema = GraphSchema(features={"x": 3})
    run = PipelineRun(spark, tmp_path, schema, 2)
    run.write([events.edge(1, 2, time=1), events.edge(2, 3, time=1)])
    run.process_available()
    for name in ("store", "checkpoint", "out", "in"):
        shutil.rmtree(tmp_path / name)
    again = PipelineRun(spark, tmp_path, schema, 2)
    again.write([events.edge(7, 8, time=1)])
    again.process_available()
    again.check()


def test_verify_compares_embeddings_with_the_log(spark: SparkSession, tmp_path: Path) -> None:
    schema = GraphSchema(features={"x": 3})
    run = PipelineRun(spark, tmp_path, schema, 2)
    run.write(*random_batches(schema, seed=2, n_batches=2, batch_size=80, n_vertices=40))
    run.process_available()
    plan = stored_plan(tmp_path / "store", arrays=str(tmp_path / "arrays"))
    verdict = verify(plan)
    assert (verdict.vertices, verdict.missing) == (len(run.checker.oracle.vertices), 0)
    assert verdict.max_relative_error < 1e-5
    (value,) = (tmp_path / "arrays").glob("*/vertex-2/0/value.array")
    held = np.memmap(value, np.float32, "r+")
    held[:4] += 1.0
    held.flush()
    assert verify(plan).max_relative_error > 1e-2
