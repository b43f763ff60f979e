"""Another version of the model: exact in a running query, kept by restarts, whole after a crash."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import numpy as np
from pyspark.sql import SparkSession

from d3gnn import GraphSchema, metrics
from d3gnn.nn import GNN, GraphSAGE
from d3gnn.oracle import embeddings
from d3gnn.runtime.verify import held_embeddings, stored_plan, verify
from d3gnn.spark.restarting import RestartingQuery
from d3gnn.store.graph_log import GraphLog
from d3gnn.store.store import Store
from d3gnn.testing import random_batches
from d3gnn.testing.pipelines import PipelineRun
from d3gnn.testing.table_checker import committed_rows

SCHEMA = GraphSchema(features={"x": 3})
#: With other widths and another aggregator than the first model.
OTHER = GraphSAGE(3, 12, 2, 6, aggr="max", seed=9)


def check(run: PipelineRun, model: GNN, version: int) -> None:
    """All newest rows, and the state, are of this version, on the final graph; no event was lost."""
    expected = embeddings(model, run.checker.oracle)
    rows = sorted(committed_rows(run.output), key=lambda row: row["batch_id"])
    newest = {row["id"]: row for row in rows}
    held = held_embeddings(stored_plan(str(run.gnn.store), arrays=run.gnn.arrays), list(expected))
    assert {newest[id]["model_version"] for id in expected} == {version}
    for id, embedding in expected.items():
        np.testing.assert_allclose(newest[id]["embedding"], embedding, atol=1e-5)
        np.testing.assert_allclose(held[id], embedding, atol=1e-5)
    assert {id for id, row in newest.items() if not row["deleted"]} == set(expected)
    run.checker.check_log(str(run.gnn.store))


def wait_until(query: RestartingQuery, version: int) -> float:
    """Wait until a batch is of this version and nothing is left to do; returns the time of the rollout."""
    deadline = time.monotonic() + 60
    while True:
        query.processAllAvailable()
        for progress in query.recentProgress[::-1]:
            found = metrics(progress)["partition"]
            if "rollout_ms" in found and found["model_version"] == version:
                return float(found["rollout_ms"])
        assert time.monotonic() < deadline, "the model did not change"


def test_rollback_and_roll_forward_in_a_running_query(spark: SparkSession, tmp_path: Path) -> None:
    run = PipelineRun(spark, tmp_path, SCHEMA, 2)
    batches = random_batches(SCHEMA, seed=5, n_batches=5, batch_size=40, n_vertices=20, delete_vertex=0.05)
    first, last = run.gnn.model, batches[4]
    query = run.start(processingTime="0 seconds")
    for batch, (deploy, model, version) in zip(
        batches, [(None, first, 1), (OTHER, OTHER, 2), (1, first, 1), ("june", OTHER, 2)], strict=False
    ):
        if deploy is not None:
            deployed = query.deploy(deploy, name="june" if deploy is OTHER else None)
            assert deployed.version == version
        run.write(batch)
        if deploy is not None:
            assert wait_until(query, version) > 0
        query.processAllAvailable()
        check(run, model, version)
    query.stop()
    assert query.restarted == 0
    assert [(each.version, each.name) for each in query.models()] == [(1, "v1"), (2, "june")]

    run.write(last)
    run.process_available()
    check(run, OTHER, 2)
    assert verify(stored_plan(str(run.gnn.store), run.gnn.arrays)).max_relative_error < 1e-5


def test_a_crash_around_a_deploy_ends_with_one_model_everywhere(spark: SparkSession, tmp_path: Path) -> None:
    run = PipelineRun(spark, tmp_path, SCHEMA, 2)
    run.write(*random_batches(SCHEMA, seed=6, n_batches=2, batch_size=40, n_vertices=20))
    run.process_available()

    # The sink has the last batch, but Spark does not know it: a replay cannot write other rows.
    commits = run.checkpoint / "commits"
    log = GraphLog(Store(str(run.gnn.store)))
    forget_commit(commits, log.last())
    run.gnn.deploy(OTHER)
    run.process_available()
    check(run, OTHER, 2)

    # The command was lost: the deployment itself is in the store.
    run.gnn.deploy(1)
    max((Path(str(run.gnn.store)) / "control").glob("[0-9]*")).unlink()
    run.process_available()
    check(run, run.gnn.model, 1)

    # The process died in the refresh, with its state, before the sink had a row of it.
    run.gnn.deploy(2)
    run.process_available()
    last = log.last()
    forget_commit(commits, last)
    forget_commit(run.output / "_spark_metadata", last)
    shutil.rmtree(str(run.gnn.arrays))
    run.process_available()
    check(run, OTHER, 2)


def forget_commit(folder: Path, batch: int | None) -> None:
    """Remove a batch from a log of Spark."""
    (folder / f"{batch}").unlink()
    (folder / f".{batch}.crc").unlink(missing_ok=True)
