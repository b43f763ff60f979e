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

from d3gnn import GraphSchema
from d3gnn.events import EventBatch, query
from d3gnn.kernel.reference import Oracle, embeddings
from d3gnn.nn import GNN, SAGE, LinkPredictor, PairHead, Similarity
from d3gnn.testing import random_batches
from d3gnn.testing.pipelines import PipelineRun, committed_rows

SCHEMA = GraphSchema(features={"x": 3})
Scores = dict[tuple[Any, Any], float]


def model_of(head: PairHead) -> GNN:
    torch.manual_seed(2)
    return GNN([SAGE(3, 8, activation="relu"), SAGE(8, 4)], head)


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
    """What each batch's queries are to be answered with, a batch being a file."""
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
    for row in sorted(rows, key=lambda row: (row["batch"], not row["deleted"])):
        if row["deleted"]:
            table.pop((row["src"], row["dst"]), None)
        elif not row["asked"]:
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
            running.await_termination()
    for name, run in runs.items():
        run.check_held()
        rows = committed_rows(run.output)
        answered = Counter((r["src"], r["dst"], round(r["score"], 4)) for r in rows if r["asked"])
        assert answered == sum(answers_to(run.gnn.model, streams[name]), Counter())
        letters = spark.read.parquet(f"{run.gnn.store}/dead_letters")
        assert letters.where("element = 'query'").count() >= 4
    oracle = runs["edges"].witness.oracle
    expected = scores_of(runs["edges"].gnn.model, oracle, oracle.edges())
    assert table_of(committed_rows(runs["edges"].output)) == pytest.approx(expected, abs=1e-5)
    assert not table_of(committed_rows(runs["queries"].output))


def test_a_batch_that_is_run_again_answers_again(spark: SparkSession, tmp_path: Path) -> None:
    """It is in the log, and its queries are not: they are read from the events once more."""
    run = PipelineRun(spark, tmp_path / "again", SCHEMA, 2, model=model_of(Similarity()))
    batches = with_queries("int", 6)[:2]
    for batch in batches:
        run.write(batch)
        run.go()
    expected = answers_to(run.gnn.model, batches)
    before = committed_rows(run.output)
    for lost in (False, True):  # with all arrays there, and after a reboot
        newest = max(int(path.name) for path in (run.checkpoint / "commits").glob("[0-9]*"))
        for folder in (run.checkpoint / "commits", run.output / "_spark_metadata"):
            for path in [*folder.glob("[0-9]*"), *folder.glob(".*")]:
                if path.name.strip(".").split(".")[0] == str(newest):
                    path.unlink()
        if lost:
            shutil.rmtree(run.gnn.arrays or "")
        run.go()
        rows = committed_rows(run.output)
        assert {row["batch"] for row in rows} == {row["batch"] for row in before}
        for number, right in enumerate(expected):
            answers = [row for row in rows if row["asked"] and row["batch"] == number]
            assert Counter((r["src"], r["dst"], round(r["score"], 4)) for r in answers) == right
    run.check_held()
