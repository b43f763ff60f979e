"""The next run rebuilds lost state, and state of another configuration, also without new events."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
from pyspark.sql import SparkSession

from d3gnn import GraphSchema
from d3gnn.nn import GraphSAGE
from d3gnn.oracle import embeddings
from d3gnn.runtime.verify import held_embeddings, stored_plan
from d3gnn.store.graph_log import GraphLog
from d3gnn.store.store import Store
from d3gnn.testing import random_batches
from d3gnn.testing.pipelines import PipelineRun
from d3gnn.testing.table_checker import committed_rows
from d3gnn.windows import Tumbling

SCHEMA = GraphSchema(features={"x": 3})


def check(run: PipelineRun) -> None:
    """State and table equal the embeddings of the newest model on the final graph."""
    expected = embeddings(run.gnn.model, run.checker.oracle)
    held = held_embeddings(stored_plan(str(run.gnn.store), arrays=run.gnn.arrays), list(expected))
    rows = sorted(committed_rows(run.output), key=lambda row: row["batch_id"])
    newest = {row["id"]: row["embedding"] for row in rows}
    for id, embedding in expected.items():
        np.testing.assert_allclose(held[id], embedding, atol=1e-5)
        np.testing.assert_allclose(newest[id], embedding, atol=1e-5)


def test_a_run_without_events_rebuilds_for_a_new_model_and_lost_arrays(
    spark: SparkSession, tmp_path: Path
) -> None:
    run = PipelineRun(spark, tmp_path, SCHEMA, 2)
    first, second = random_batches(SCHEMA, seed=5, n_batches=2, batch_size=40, n_vertices=20)
    run.write(first)
    run.process_available()
    check(run)

    run.set_model(GraphSAGE(3, 8, 2, 4, seed=9))
    run.process_available()
    check(run)
    log = GraphLog(Store(str(run.gnn.store)))
    made = log.last()
    run.process_available()
    assert log.last() == made, "the run processed a batch"

    shutil.rmtree(tmp_path / "arrays")
    run.process_available()
    check(run)

    run.write(second)
    run.process_available()
    check(run)


def test_pending_counts_of_another_query_are_ignored(spark: SparkSession, tmp_path: Path) -> None:
    run = PipelineRun(spark, tmp_path, SCHEMA, 2, window=Tumbling(3600.0))
    (tmp_path / "arrays").mkdir()
    np.full((40, 2), 7, np.int64).tofile(tmp_path / "arrays" / "board")
    run.write(*random_batches(SCHEMA, seed=6, n_batches=2, batch_size=40, n_vertices=20))
    assert run.start().awaitTermination(120), "the run does not end"
    check(run)
    assert run.gnn.pending() == 0
