"""Every kind of layer in a pipeline on Spark: a fixed stream each, with a loss of all arrays on the way."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import torch
from pyspark.sql import SparkSession
from torch import nn

from d3gnn import GraphSchema
from d3gnn.nn import GAT, GCN, GIN, GNN, SAGE, GATv2, GraphConv, Layer, Stage
from d3gnn.nn.modules import Jump
from d3gnn.testing import random_batches
from d3gnn.testing.pipelines import PipelineRun
from d3gnn.testing.streams import positive


def jumping() -> list[Layer]:
    ends = nn.Sequential(Jump("cat", 4), nn.Linear(8, 3))
    return [Stage(GCN(3, 4), nn.ELU()), Stage(GCN(4, 4), nn.ReLU(), keep="cat", ends=ends)]


#: By layer: how to make two of them, and how many numbers their edges have.
LAYERS: dict[str, tuple[Callable[[], list[Layer]], int]] = {
    "SAGE": (lambda: [SAGE(3, 4, "mean,max", "relu"), SAGE(4, 2, "min", normalize=True)], 0),
    "GCN": (lambda: [GCN(3, 4, "tanh", weighted=True), GCN(4, 2, weighted=True)], 1),
    "GraphConv": (lambda: [GraphConv(3, 4, weighted=True), GraphConv(4, 2, "max", weighted=True)], 1),
    "GIN": (lambda: [GIN(3, 4, activation="relu"), GIN(4, 2, "max", eps=0.5)], 0),
    "GAT": (lambda: [GAT(3, 2, 2, "elu", edge_in=2), GAT(4, 3, 2, concat=False, edge_in=2)], 2),
    "GATv2": (lambda: [GATv2(3, 2, 2, "elu", edge_in=2), GATv2(4, 3, residual=True, edge_in=2)], 2),
    "Stage": (jumping, 0),
}


def test_pipelines_equal_the_oracle(spark: SparkSession, tmp_path: Path) -> None:
    """All at once, so that they need not wait for one another to start."""
    streams, runs = {}, {}
    for name, (make, edge_width) in LAYERS.items():
        torch.manual_seed(1)
        schema = GraphSchema(features={"x": 3}, edge_features={"w": edge_width} if edge_width else {})
        runs[name] = PipelineRun(spark, tmp_path / name, schema, 2, model=GNN(make()))
        runs[name].witness.tolerance = 1e-4
        batches = random_batches(schema, seed=3, n_batches=4, batch_size=40, n_vertices=20)
        # Degrees are made of weights above 0.
        streams[name] = [positive(batch) if name == "GCN" else batch for batch in batches]
    for begin in (0, 2):
        for name, run in runs.items():
            run.write(*streams[name][begin : begin + 2])
            shutil.rmtree(tmp_path / name / "arrays", ignore_errors=True)  # as after a reboot
        for running in [run.start() for run in runs.values()]:
            running.await_termination()
    for run in runs.values():
        run.check()
