"""Every layer in a pipeline on Spark, on a fixed stream, with a loss of all arrays in between."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import torch
from pyspark.sql import SparkSession
from torch import nn

from d3gnn import GraphSchema
from d3gnn.nn import GNN, GATConv, GATv2Conv, GCNConv, GINConv, GraphConv, Layer, SAGEConv, Stage
from d3gnn.nn.models import two_linear
from d3gnn.nn.modules import Jump
from d3gnn.testing import random_batches
from d3gnn.testing.pipelines import PipelineRun
from d3gnn.testing.streams import positive


def jumping() -> list[Layer]:
    final = nn.Sequential(Jump("cat", 4), nn.Linear(8, 3))
    return [Stage(GCNConv(3, 4), nn.ELU()), Stage(GCNConv(4, 4), nn.ReLU(), keep="cat", final=final)]


#: By layer: two layers, and the width of their edge features.
LAYERS: dict[str, tuple[Callable[[], list[Layer]], int]] = {
    "SAGEConv": (lambda: [SAGEConv(3, 4, "mean,max", act="relu"), SAGEConv(4, 2, "min", normalize=True)], 0),
    "GCN": (lambda: [GCNConv(3, 4, act="tanh", edge_weight=True), GCNConv(4, 2, edge_weight=True)], 1),
    "GraphConv": (lambda: [GraphConv(3, 4, edge_weight=True), GraphConv(4, 2, "max", edge_weight=True)], 1),
    "GIN": (lambda: [GINConv(two_linear(3, 4), act="relu"), GINConv(two_linear(4, 2), 0.5, aggr="max")], 0),
    "GAT": (lambda: [GATConv(3, 2, 2, act="elu", edge_dim=2), GATConv(4, 3, 2, concat=False, edge_dim=2)], 2),
    "GATv2": (
        lambda: [GATv2Conv(3, 2, 2, act="elu", edge_dim=2), GATv2Conv(4, 3, residual=True, edge_dim=2)],
        2,
    ),
    "Stage": (jumping, 0),
}


def test_pipelines_equal_the_oracle(spark: SparkSession, tmp_path: Path) -> None:
    """All pipelines start at the same time, which saves time."""
    streams, runs = {}, {}
    for name, (make, edge_width) in LAYERS.items():
        torch.manual_seed(1)
        schema = GraphSchema(features={"x": 3}, edge_features={"w": edge_width} if edge_width else {})
        runs[name] = PipelineRun(spark, tmp_path / name, schema, 2, model=GNN(make()))
        runs[name].checker.tolerance = 1e-4
        batches = random_batches(schema, seed=3, n_batches=4, batch_size=40, n_vertices=20)
        # Degrees need weights above 0.
        streams[name] = [positive(batch) if name == "GCN" else batch for batch in batches]
    for begin in (0, 2):
        for name, run in runs.items():
            run.write(*streams[name][begin : begin + 2])
            shutil.rmtree(tmp_path / name / "arrays", ignore_errors=True)  # as after a reboot
        for running in [run.start() for run in runs.values()]:
            running.awaitTermination()
    for run in runs.values():
        run.check()
