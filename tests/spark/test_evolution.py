"""A fork goes on where the old pipeline was, and a new query takes over an old store; both stay exact."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from d3gnn import GraphSchema, StreamingGNN, metrics
from d3gnn.events import EventBatch, edge, feature
from d3gnn.nn import GraphSAGE
from d3gnn.oracle import Oracle, embeddings
from d3gnn.runtime.verify import held_embeddings, stored_plan, verify
from d3gnn.sources.event_files import EventFiles
from d3gnn.store.graph_log import GraphLog
from d3gnn.store.store import StoreError
from d3gnn.testing import random_batches
from d3gnn.testing.pipelines import PipelineRun
from d3gnn.testing.table_checker import committed_rows


def check(gnn: StreamingGNN, oracle: Oracle) -> None:
    """State and log equal a recomputation from the events."""
    expected = embeddings(gnn.model, oracle)
    plan = stored_plan(str(gnn.store), arrays=gnn.arrays)
    held = held_embeddings(plan, list(expected))
    assert set(held) == set(expected)
    for id, embedding in expected.items():
        np.testing.assert_allclose(held[id], embedding, atol=1e-5)
    verdict = verify(plan)
    assert (verdict.vertices, verdict.edges) == (len(expected), len(oracle.edges()))
    assert verdict.missing == 0
    assert verdict.max_relative_error < 1e-5


def content(folder: Path) -> dict[Path, tuple[bytes, int]]:
    return {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in folder.rglob("*") if p.is_file()}


def test_a_fork_goes_on_with_what_comes_next(spark: SparkSession, tmp_path: Path) -> None:
    """From 2 to 8 parts, from HDRF to Random, with a feature added."""
    old_schema = GraphSchema(features={"x": 3})
    old = PipelineRun(spark, tmp_path / "old", old_schema, 2)
    batches = random_batches(old_schema, seed=4, n_batches=2, batch_size=150, n_vertices=40)
    old.write(*batches)
    old.process_available()
    before = content(tmp_path / "old")

    schema = GraphSchema(features={"x": 3, "risk": 1})
    gnn = StreamingGNN(
        GraphSAGE(4, 8, 2, 4, seed=3), name="new", store=tmp_path / "new", arrays=tmp_path / "arrays",
        parts=8, partitioner="random", schema=schema,
    )  # fmt: skip
    seen: list[tuple[int, int]] = []
    made = gnn.fork(tmp_path / "old" / "store", progress=lambda done, total: seen.append((done, total)))
    assert content(tmp_path / "old") == before
    assert seen[-1][0] == seen[-1][1] >= made.events

    files = EventFiles(tmp_path / "in")
    oracle = Oracle(schema)
    for batch in batches:
        oracle.apply(batch)
    # A feature event that was late before is late in the fork.
    known = next(
        (id, values["x"][0]) for id, values in oracle._features.items() if values.get("x", (0, None))[1]
    )
    late = feature(known[0], [9.0, 9.0, 9.0], name="x", time=known[1] - 1)
    more = [late, feature(known[0], [0.5], name="risk", time=0), edge(known[0], 1000, time=0)]
    for later in (more, random_batches(old_schema, seed=5, n_batches=1, batch_size=80, n_vertices=40)[0]):
        files.write(later)
        oracle.apply(later)
    query = gnn.start(
        files.read(spark), tmp_path / "out", checkpoint=tmp_path / "checkpoint", availableNow=True, restarts=0
    )
    query.awaitTermination()
    check(gnn, oracle)
    log = GraphLog.open(tmp_path / "new")
    assert [log.meta(b).late for b in (0, 1)] == [0, 1]  # type: ignore[union-attr]
    partition = metrics(query.recentProgress[-1])["partition"]
    assert (partition["live"], partition["lacking"]) == (len(oracle.vertices), oracle.lacking)


def test_a_new_query_with_another_source_takes_over(spark: SparkSession, tmp_path: Path) -> None:
    """In a multigraph, in which an event that is applied twice or not at all shows."""
    schema = GraphSchema(edges="multi", features={"x": 3})
    old = PipelineRun(spark, tmp_path, schema, 2)
    first, second, third, fourth = random_batches(schema, seed=6, n_batches=4, batch_size=60, n_vertices=30)
    old.write(first)
    old.process_available()
    oracle = Oracle(schema)
    oracle.apply(EventBatch.of(first))

    one, other = EventFiles(tmp_path / "one"), EventFiles(tmp_path / "other")
    gnn = StreamingGNN(
        old.gnn.model,
        name=old.gnn.name,
        store=old.gnn.store,
        arrays=old.gnn.arrays,
        schema=schema,
        adopt=True,
        tasks=PipelineRun.tasks,
    )

    def process(output: str = "out2") -> None:
        events = one.read(spark).unionByName(other.read(spark))
        query = gnn.start(
            events, tmp_path / output, checkpoint=tmp_path / "checkpoint2", availableNow=True, restarts=0
        )
        query.awaitTermination()

    one.write(second)
    other.write([edge(1, 2, time=99), edge(1, 2, time=99)])
    oracle.apply(EventBatch.concat([EventBatch.of(second), EventBatch.of([edge(1, 2, time=99)] * 2)]))
    with pytest.raises(StoreError, match="is new, so that Spark would skip"):
        process("out")
    process()
    check(gnn, oracle)
    assert {row["batch_id"] for row in committed_rows(tmp_path / "out2")} == {2}  # 1 separates the queries

    one.write(third)
    oracle.apply(EventBatch.of(third))
    process()  # adopt=True is still there
    check(gnn, oracle)

    old.checker.files.write(fourth)
    for adopt in (False, True):
        old.gnn.adopt = adopt
        with pytest.raises(Exception, match=r"until query .* took it over"):
            old.process_available()
    check(gnn, oracle)
