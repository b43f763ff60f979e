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
from d3gnn.nn import GNN, Classifier, GCNConv
from d3gnn.oracle import Oracle, embeddings
from d3gnn.testing import random_batches
from d3gnn.testing.pipelines import PipelineRun
from d3gnn.testing.table_checker import committed_rows

SCHEMA = GraphSchema(features={"x": 3})


def undecided(batches: list[EventBatch]) -> tuple[GNN, dict[Any, tuple[int, float]]]:
    """A model that predicts several classes on the final graph of these batches, and its predictions."""
    oracle = Oracle(SCHEMA)
    for batch in batches:
        oracle.apply(batch)
    for seed in range(100):
        torch.manual_seed(seed)
        model, head = GNN([GCNConv(3, 8, act="relu"), GCNConv(8, 4)]), Classifier(nn.Linear(4, 3))
        found = embeddings(model, oracle)
        with torch.inference_mode():
            predicted = head.predict(torch.from_numpy(np.stack(list(found.values()))))
        if len(set(predicted[:, 0].tolist())) == 3:
            model.head = head
            expected = {id: (int(row[0]), row[1]) for id, row in zip(found, predicted.tolist(), strict=True)}
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
        running.awaitTermination()
    runs["all"].check()

    everything = newest(runs["all"])
    assert everything.keys() == expected.keys()
    for id, row in everything.items():
        assert row["prediction"] == expected[id][0]
        assert row["score"] == pytest.approx(expected[id][1], abs=1e-5)

    alerted = newest(runs["alerts"])
    runs["alerts"].check_state()
    assert 0 < len(committed_rows(runs["alerts"].output)) < len(committed_rows(runs["all"].output))
    for id, (prediction, _) in expected.items():
        if prediction in (0, 1):
            assert alerted[id]["prediction"] == prediction
    assert alerted.keys() <= expected.keys()

    # Without alerts, the predictions that were no alerts are emitted, too.
    deleted = next(iter(alerted))
    runs["alerts"].reconfigure(alerts=None)
    runs["alerts"].write([delete_vertex(deleted, time=10**6)])
    runs["alerts"].process_available()
    runs["alerts"].check_state()
    assert newest(runs["alerts"]).keys() == expected.keys() - {deleted}


def test_small_changes_are_sent_after_min_change_is_removed(spark: SparkSession, tmp_path: Path) -> None:
    run = PipelineRun(spark, tmp_path, SCHEMA, 2, min_change=1.0)
    run.write(*random_batches(SCHEMA, seed=4, n_batches=2, batch_size=50, n_vertices=25))
    run.process_available()
    with pytest.raises(AssertionError, match="embeddings differ"):
        run.check_state()
    run.reconfigure(min_change=0.0)
    run.write([edge(0, 1, time=10**6)])
    run.process_available()
    run.check_state()


def newest(run: PipelineRun) -> dict[Any, dict[str, Any]]:
    table: dict[Any, dict[str, Any]] = {}
    for row in sorted(committed_rows(run.output), key=lambda row: row["batch_id"]):
        if row["deleted"]:
            assert row["prediction"] is None
            del table[row["id"]]
        else:
            table[row["id"]] = row
    return table
