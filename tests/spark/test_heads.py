"""Node classification through Spark, from events to a table of classes, or of alerts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pyspark.sql import SparkSession
from torch import nn

from d3gnn import Alerts, GraphSchema
from d3gnn.events import EventBatch, delete_vertex, edge
from d3gnn.kernel.reference import Oracle, embeddings
from d3gnn.nn import GCN, GNN, Classifier
from d3gnn.testing import random_batches
from d3gnn.testing.pipelines import PipelineRun, committed_rows

SCHEMA = GraphSchema(features={"x": 3})


def undecided(batches: list[EventBatch]) -> tuple[GNN, dict[Any, tuple[int, float]]]:
    """A model that sees several classes in the graph that these make, and what it says at the end."""
    oracle = Oracle(SCHEMA)
    for batch in batches:
        oracle.apply(batch)
    for seed in range(100):
        torch.manual_seed(seed)
        model, head = GNN([GCN(3, 8, "relu"), GCN(8, 4)]), Classifier(nn.Linear(4, 3))
        found = embeddings(model, oracle)
        with torch.inference_mode():
            said = head.predict(torch.from_numpy(np.stack(list(found.values()))))
        if len(set(said[:, 0].tolist())) == 3:
            model.head = head
            expected = {id: (int(row[0]), row[1]) for id, row in zip(found, said.tolist(), strict=True)}
            return model, expected
    raise AssertionError("every model sees the same in all")


def test_classes_and_alerts(spark: SparkSession, tmp_path: Path) -> None:
    batches = random_batches(SCHEMA, seed=4, n_batches=4, batch_size=50, n_vertices=25)
    model, expected = undecided(batches)
    runs = {
        name: PipelineRun(spark, tmp_path / name, SCHEMA, 2, model=model, alerts=alerts)
        for name, alerts in {"all": None, "alerts": Alerts(classes=[0, 1], changed_class=True)}.items()
    }
    for run in runs.values():
        run.write(*batches)
    for running in [run.start() for run in runs.values()]:
        running.await_termination()
    runs["all"].check()

    everything = newest(runs["all"])
    assert everything.keys() == expected.keys()
    for id, row in everything.items():
        assert row["prediction"] == expected[id][0]
        assert row["score"] == pytest.approx(expected[id][1], abs=1e-5)

    alerted = newest(runs["alerts"])
    runs["alerts"].check_held()
    assert 0 < len(committed_rows(runs["alerts"].output)) < len(committed_rows(runs["all"].output))
    for id, (prediction, _) in expected.items():
        if prediction in (0, 1):
            assert alerted[id]["prediction"] == prediction
    assert alerted.keys() <= expected.keys()

    # What was not worth saying is said when there are no alerts any more.
    gone = next(iter(alerted))
    runs["alerts"].gnn.alerts = None
    runs["alerts"].write([delete_vertex(gone, time=10**6)])
    runs["alerts"].go()
    runs["alerts"].check_held()
    assert newest(runs["alerts"]).keys() == expected.keys() - {gone}


def test_what_was_too_small_a_change_travels_on_when_none_is_any_more(
    spark: SparkSession, tmp_path: Path
) -> None:
    run = PipelineRun(spark, tmp_path, SCHEMA, 2, epsilon=1.0)
    run.write(*random_batches(SCHEMA, seed=4, n_batches=2, batch_size=50, n_vertices=25))
    run.go()
    with pytest.raises(AssertionError, match="embeddings differ"):
        run.check_held()
    run.gnn.epsilon = 0.0
    run.write([edge(0, 1, time=10**6)])
    run.go()
    run.check_held()


def newest(run: PipelineRun) -> dict[Any, dict[str, Any]]:
    table: dict[Any, dict[str, Any]] = {}
    for row in sorted(committed_rows(run.output), key=lambda row: row["batch"]):
        if row["deleted"]:
            assert row["prediction"] is None
            del table[row["id"]]
        else:
            table[row["id"]] = row
    return table
