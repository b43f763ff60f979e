"""What was lost, or made with something else, is made anew by the next run, also when no events come."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
from pyspark.sql import SparkSession

from d3gnn import GraphSchema
from d3gnn.kernel.reference import embeddings
from d3gnn.nn import GraphSAGE
from d3gnn.spark.graph_log import GraphLog
from d3gnn.spark.store import Store
from d3gnn.spark.verify import held_embeddings, stored_plan
from d3gnn.testing import random_batches
from d3gnn.testing.pipelines import PipelineRun, committed_rows
from d3gnn.windows import Tumbling

SCHEMA = GraphSchema(features={"x": 3})


def check(run: PipelineRun) -> None:
    """What is held, and the newest row of each vertex, is what the newest model makes of the graph."""
    expected = embeddings(run.gnn.model, run.witness.oracle)
    held = held_embeddings(stored_plan(str(run.gnn.store), arrays=run.gnn.arrays), list(expected))
    rows = sorted(committed_rows(run.output), key=lambda row: row["batch"])
    newest = {row["id"]: row["embedding"] for row in rows}
    for id, embedding in expected.items():
        np.testing.assert_allclose(held[id], embedding, atol=1e-5)
        np.testing.assert_allclose(newest[id], embedding, atol=1e-5)


def test_a_run_without_events_takes_another_model_and_finds_lost_arrays(
    spark: SparkSession, tmp_path: Path
) -> None:
    run = PipelineRun(spark, tmp_path, SCHEMA, 2)
    first, second = random_batches(SCHEMA, seed=5, n_batches=2, batch_size=40, n_vertices=20)
    run.write(first)
    run.go()
    check(run)

    run.use(GraphSAGE([3, 8, 4], seed=9))
    run.go()
    check(run)
    log = GraphLog(Store(str(run.gnn.store)))
    made = log.last()
    run.go()
    assert log.last() == made, "nothing was left to do"

    shutil.rmtree(tmp_path / "arrays")
    run.go()
    check(run)

    run.write(second)
    run.go()
    check(run)


def test_what_another_query_has_left_on_the_board_is_nothing_to_wait_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    run = PipelineRun(spark, tmp_path, SCHEMA, 2, window=Tumbling(3600.0))
    (tmp_path / "arrays").mkdir()
    np.full((40, 2), 7, np.int64).tofile(tmp_path / "arrays" / "board")
    run.write(*random_batches(SCHEMA, seed=6, n_batches=2, batch_size=40, n_vertices=20))
    assert run.start().await_termination(120), "it never ends"
    check(run)
    assert run.gnn.pending() == 0
