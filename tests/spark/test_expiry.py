"""On Spark: what expires is logged, emitted as tombstones, and survives lost state and replays."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from pyspark.sql import SparkSession

from d3gnn import GraphSchema
from d3gnn.events import Element, EventBatch, Op, edge
from d3gnn.events.event import NO_TIME
from d3gnn.runtime.verify import stored_plan, verify
from d3gnn.store.graph_log import GraphLog
from d3gnn.testing import random_batches
from d3gnn.testing.pipelines import PipelineRun
from d3gnn.testing.table_checker import newest_rows

SIZE = 40


def batches(schema: GraphSchema) -> list[EventBatch]:
    """Batches in which some edges have a lifetime of their own."""
    found = []
    for batch in random_batches(schema, seed=8, n_batches=6, batch_size=SIZE, n_vertices=30):
        creates = (batch.op == Op.CREATE) & (batch.element == Element.EDGE)
        own = np.where(creates & (batch.time % 3 == 0), 1 + batch.time % 100, NO_TIME)
        found.append(replace(batch, ttl=np.where(own > 0, own, NO_TIME)))
    return found


def test_the_table_is_that_of_unexpired_edges_with_lost_state_in_between(
    spark: SparkSession, tmp_path: Path
) -> None:
    schema = GraphSchema(edges="multi", ttl=60, vertex_ttl=70, features={"x": 3}, edge_features={"w": 1})
    run = PipelineRun(spark, tmp_path, schema, 2, order=("ttl",))
    first, second, *rest = batches(schema)
    run.write(first, second)
    run.process_available()
    log = GraphLog.open(run.gnn.store or "")
    log.compact()
    shutil.rmtree(tmp_path / "arrays")
    run.write(*rest)
    run.process_available()  # the first of its batches rebuilds the graph, and lets some of it expire
    run.check()
    history = log.history().to_pandas()
    expired = history[history.ttl == 0]
    assert set(expired.op) == {"delete"}
    assert set(expired.element) == {"edge", "vertex"}


def test_an_idle_stream_expires_by_the_clock(spark: SparkSession, tmp_path: Path) -> None:
    schema = GraphSchema(ttl="1s", vertex_ttl="1s", idle="1ms", features={"x": 3})
    run = PipelineRun(spark, tmp_path, schema, 2)
    now = time.time_ns() // 1000
    run.write([edge(1, 2, time=now + 3_000_000), edge(2, 3, time=now + 4_000_000)])
    running = run.start(processingTime="0 seconds")
    try:
        end = time.monotonic() + 60
        log = GraphLog.open(run.gnn.store or "")
        while (last := log.last()) is None or (log.history()["ttl"].to_numpy() == 0).sum() != 5:
            assert time.monotonic() < end, log.history()
            time.sleep(0.05)
        running.processAllAvailable()
        assert last > 0
    finally:
        running.stop()
    assert newest_rows(run.output) == {}
    assert verify(stored_plan(str(run.gnn.store), arrays=run.gnn.arrays)).vertices == 0
