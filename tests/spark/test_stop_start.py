"""A query that is stopped and started again and again under load never has to rebuild its state."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from d3gnn import GraphSchema, metrics
from d3gnn.kernel.mapped_state import MappedPartState
from d3gnn.spark.restarting import RestartingQuery
from d3gnn.store.runs import RUNS
from d3gnn.testing import random_batches
from d3gnn.testing.pipelines import PipelineRun

THOROUGH = "D3GNN_THOROUGH" in os.environ
STARTS = 50 if THOROUGH else 5
SCHEMA = GraphSchema(features={"x": 3})


def refreshes(query: RestartingQuery) -> int:
    return sum(
        metrics(progress).get("partition", {}).get("refreshed", 0) for progress in query.recentProgress
    )


@pytest.mark.parametrize("tasks", [1, 2] if THOROUGH else [1], ids=lambda tasks: f"{tasks} tasks")
def test_stop_and_start_under_load_rebuild_nothing(spark: SparkSession, tmp_path: Path, tasks: int) -> None:
    run = PipelineRun(spark, tmp_path, SCHEMA, tasks=tasks)
    batches = random_batches(SCHEMA, seed=8, n_batches=4 * STARTS, batch_size=60, n_vertices=50)
    run.write(*batches)  # there is always a next batch
    log, chance = tmp_path / "store" / "log", random.Random(STARTS)
    for _ in range(STARTS):
        query = run.start(availableNow=None)
        logged = len(list(log.glob("*.parquet")))
        deadline = time.monotonic() + 120
        while query.isActive and len(list(log.glob("*.parquet"))) == logged:
            assert time.monotonic() < deadline, "no batch was logged"
            time.sleep(0.005)
        time.sleep(chance.random() * 0.3)  # into the middle of a batch, or between two
        query.stop()
        assert (query.exception(), query.restarted, refreshes(query)) == (None, 0, 0)
    query = run.process_available()
    assert refreshes(query) == 0
    (partition,) = Path(run.gnn.arrays or "").glob("*/partition/0")
    assert MappedPartState(partition).version == (0, 4 * STARTS), "in the first epoch"
    runs = sorted(path.name for path in (tmp_path / "store" / RUNS).iterdir())
    assert runs == [f"{number:06d}.json" for number in range(1, STARTS + 2)], "no rebuild"
    run.check()
