"""LocalEngine and a Spark pipeline emit the same rows for the same batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from pyspark.sql import SparkSession
from torch import nn

from d3gnn import Alerts, GraphSchema, LocalEngine
from d3gnn.events import EventBatch, delete_vertex
from d3gnn.kernel.operators import Emit
from d3gnn.nn import GNN, Classifier, SAGEConv, Similarity
from d3gnn.testing import random_batches
from d3gnn.testing.pipelines import PipelineRun
from d3gnn.testing.table_checker import committed_files

SCHEMA = GraphSchema(features={"x": 3})


def model_of(kind: str) -> GNN:
    torch.manual_seed(4)
    layers = [SAGEConv(3, 8, act="relu"), SAGEConv(8, 4)]
    heads: dict[str, Any] = {
        "embeddings": None,
        "classes": Classifier(nn.Linear(4, 3)),
        "alerts": Classifier(nn.Linear(4, 3)),
        "pairs": Similarity(edges=True),
    }
    return GNN(layers, heads[kind])


def stream(kind: str) -> list[EventBatch]:
    """Batches with deletes; events have an arrival."""
    batches: list[EventBatch] = []
    gone = ""
    for number, batch in enumerate(
        random_batches(SCHEMA, seed=6, n_batches=3, batch_size=50, n_vertices=25, ids="str")
    ):
        events = [*batch.rows(range(len(batch)))]
        edges = [event for event in events if event.element == "edge" and event.op == "create"]
        if kind == "pairs":
            events += [event._replace(element="query", value=None) for event in edges[:5]]
        if number == 2:
            events.append(delete_vertex(gone, time=10**6))
        gone = str(edges[0].src)
        events = [event._replace(arrival=1_000_000 * number + i) for i, event in enumerate(events)]
        batches.append(EventBatch.of(events))
    return batches


@pytest.mark.parametrize(
    ("kind", "emit"),
    [("embeddings", "head"), ("classes", "head"), ("alerts", "all"), ("pairs", "head"), ("pairs", "all")],
)
def test_the_same_columns_and_rows(spark: SparkSession, tmp_path: Path, kind: str, emit: Emit) -> None:
    model, batches = model_of(kind), stream(kind)
    alerts = Alerts(classes=[0, 1], changed_class=True) if kind == "alerts" else None
    engine = LocalEngine(model, parts=2, schema=SCHEMA, alerts=alerts, emit=emit)
    local = pa.concat_tables([engine.apply(batch).to_arrow() for batch in batches])
    run = PipelineRun(
        spark, tmp_path, SCHEMA, 2, model=model, alerts=alerts, emit=emit, ids="string", order=("arrival",)
    )
    run.write(*batches)
    run.process_available()
    of_spark = pa.concat_tables(pq.read_table(file) for file in committed_files(run.output))

    in_table = spark.read.parquet(str(run.output)).schema
    assert in_table["time"].dataType.typeName() == in_table["arrival"].dataType.typeName() == "timestamp"
    assert of_spark.schema.names == local.schema.names
    for field in local.schema:
        if field.name != "embedding" and not pa.types.is_timestamp(field.type):
            assert of_spark.schema.field(field.name).type == field.type
    ours, theirs = rows_of(local), rows_of(of_spark.cast(local.schema))
    assert [row[:-2] for row in ours] == [row[:-2] for row in theirs]
    for column in (-2, -1):
        np.testing.assert_allclose(
            [row[column] for row in ours if row[column] is not None],
            [row[column] for row in theirs if row[column] is not None],
            atol=1e-5,
        )
    assert any(row["deleted"] for row in local.to_pylist())


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """Rows in an order of their own, floating-point numbers last."""
    exact = [name for name in table.column_names if name not in ("embedding", "score")]
    rows = [
        (*(row[name] for name in exact), row.get("score"), row.get("embedding")) for row in table.to_pylist()
    ]
    return sorted(rows, key=str)
