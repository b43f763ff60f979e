"""Link prediction and similarity through Spark, from events and queries to a table of scores."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pyspark.sql import SparkSession
from torch import nn

from d3gnn import Alerts, GraphSchema, LocalEngine
from d3gnn.events import EventBatch, query
from d3gnn.nn import GNN, LinkPredictor, PairHead, SAGEConv, Similarity
from d3gnn.oracle import Oracle, embeddings
from d3gnn.testing import random_batches
from d3gnn.testing.pipelines import PipelineRun
from d3gnn.testing.table_checker import committed_rows

SCHEMA = GraphSchema(features={"x": 3})
Scores = dict[tuple[Any, Any], float]


def model_of(head: PairHead) -> GNN:
    torch.manual_seed(2)
    return GNN([SAGEConv(3, 8, act="relu"), SAGEConv(8, 4)], head)


def with_queries(ids: Any, seed: int) -> list[EventBatch]:
    """Batches with queries among their events, of vertices that do and that do not exist."""
    rng = np.random.default_rng(seed)
    name = str if ids == "str" else int
    batches = random_batches(SCHEMA, seed, n_batches=4, batch_size=50, n_vertices=25, ids=ids)
    rows = [[*batch.rows(range(len(batch)))] for batch in batches]
    known = sorted({event.src for events in rows for event in events if event.src is not None}, key=str)
    for b, events in enumerate(rows):
        pairs = rng.choice(len(known), (10, 2))
        events += [query(known[u], known[v], time=b * 1000) for u, v in pairs]
        events.append(query(known[0], name(10**6), time=b))
        rng.shuffle(events)
    return [EventBatch.of(events) for events in rows]


def scores_of(model: GNN, oracle: Oracle, pairs: Iterable[tuple[Any, Any]]) -> Scores:
    found, pairs = embeddings(model, oracle), list(pairs)
    assert isinstance(model.head, PairHead)
    src, dst = (torch.from_numpy(np.stack([found[pair[end]] for pair in pairs])) for end in (0, 1))
    with torch.inference_mode():
        return dict(zip(pairs, model.head.score(src, dst).tolist(), strict=True))


def answers_to(model: GNN, batches: list[EventBatch]) -> list[Counter[tuple[Any, Any, float]]]:
    """The expected answers to the queries of each batch; a batch is a file."""
    oracle, found = Oracle(SCHEMA, answers=True), []
    for batch in batches:
        reasons = oracle.apply(batch)
        asked = [e for e, r in zip(batch.rows(range(len(batch))), reasons, strict=True) if r == 0]
        pairs = [(event.src, event.dst) for event in asked if event.element == "query"]
        right = scores_of(model, oracle, pairs)
        found.append(Counter((u, v, round(right[u, v], 4)) for u, v in pairs))
    return found


def table_of(rows: list[dict[str, Any]]) -> Scores:
    """The newest score of each edge."""
    table: Scores = {}
    for row in sorted(rows, key=lambda row: (row["batch_id"], not row["deleted"])):
        if row["deleted"]:
            table.pop((row["src"], row["dst"]), None)
        elif not row["is_query"]:
            table[row["src"], row["dst"]] = row["score"]
    return table


def test_scores_of_edges_and_answers(spark: SparkSession, tmp_path: Path) -> None:
    runs = {
        "edges": PipelineRun(
            spark, tmp_path / "edges", SCHEMA, 2, model=model_of(LinkPredictor(nn.Linear(4, 1), edges=True))
        ),
        "queries": PipelineRun(
            spark, tmp_path / "queries", SCHEMA, 3, model=model_of(Similarity()), ids="string"
        ),
    }
    streams = {"edges": with_queries("int", 4), "queries": with_queries("str", 5)}
    for begin in (0, 2):
        for name, run in runs.items():
            run.write(*streams[name][begin : begin + 2])
            shutil.rmtree(run.gnn.arrays or "", ignore_errors=True)  # as after a reboot
        for running in [run.start() for run in runs.values()]:
            running.awaitTermination()
    for name, run in runs.items():
        run.check_state()
        rows = committed_rows(run.output)
        answered = Counter((r["src"], r["dst"], round(r["score"], 4)) for r in rows if r["is_query"])
        assert answered == sum(answers_to(run.gnn.model, streams[name]), Counter())
        letters = spark.read.parquet(f"{run.gnn.store}/dead_letters")
        assert letters.where("element = 'query'").count() >= 4
    oracle = runs["edges"].checker.oracle
    expected = scores_of(runs["edges"].gnn.model, oracle, oracle.edges())
    assert table_of(committed_rows(runs["edges"].output)) == pytest.approx(expected, abs=1e-5)
    assert not table_of(committed_rows(runs["queries"].output))


def test_a_replayed_batch_answers_its_queries_again(spark: SparkSession, tmp_path: Path) -> None:
    """Its queries are not in the log: they are read from the events again."""
    run = PipelineRun(spark, tmp_path / "again", SCHEMA, 2, model=model_of(Similarity()))
    batches = with_queries("int", 6)[:2]
    for batch in batches:
        run.write(batch)
        run.process_available()
    expected = answers_to(run.gnn.model, batches)
    before = committed_rows(run.output)
    for lost in (False, True):  # with all arrays, and after a reboot
        newest = max(int(path.name) for path in (run.checkpoint / "commits").glob("[0-9]*"))
        for folder in (run.checkpoint / "commits", run.output / "_spark_metadata"):
            for path in [*folder.glob("[0-9]*"), *folder.glob(".*")]:
                if path.name.strip(".").split(".")[0] == str(newest):
                    path.unlink()
        if lost:
            shutil.rmtree(run.gnn.arrays or "")
        run.process_available()
        rows = committed_rows(run.output)
        assert {row["batch_id"] for row in rows} == {row["batch_id"] for row in before}
        for number, right in enumerate(expected):
            answers = [row for row in rows if row["is_query"] and row["batch_id"] == number]
            assert Counter((r["src"], r["dst"], round(r["score"], 4)) for r in answers) == right
    run.check_state()


def test_all_scores_with_a_mark_for_alerts(spark: SparkSession, tmp_path: Path) -> None:
    model = model_of(LinkPredictor(nn.Linear(4, 1), edges=True))
    alerts = Alerts(threshold=0.5)
    run = PipelineRun(spark, tmp_path, SCHEMA, 2, model=model, alerts=alerts, emit="all")
    batches = with_queries("int", 7)
    engine, expected = LocalEngine(model, parts=2, schema=SCHEMA, alerts=alerts, emit="all"), []
    for batch in batches:
        run.write(batch)
        expected += [marked(row) for row in engine.apply(batch).to_arrow().to_pylist()]
    run.process_available()
    rows = [marked(row) for row in committed_rows(run.output)]
    assert Counter(rows) == Counter(expected)
    assert {is_alert for *_, is_alert in rows} == {True, False, None}
    run.check_state()


def marked(row: dict[str, Any]) -> tuple[Any, ...]:
    names = ("batch_id", "id", "src", "dst", "is_query", "deleted", "is_alert")
    return tuple(row[name] for name in names)
