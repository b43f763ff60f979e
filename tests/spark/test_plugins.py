"""Plugins that are defined in the user's script: workers get them with the query."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from pyspark.sql import SparkSession
from torch import Tensor

from d3gnn import GraphSchema
from d3gnn.kernel.aggregators.base import _KNOWN as AGGREGATORS
from d3gnn.kernel.partitioners.base import _REGISTRY as PARTITIONERS
from d3gnn.kernel.windows.base import _KNOWN as WINDOWS
from d3gnn.nn import GNN, Head, Layer, SAGEConv
from d3gnn.nn.aggregation import unregister_aggregation
from d3gnn.nn.heads import _TYPES as HEADS
from d3gnn.nn.layer import _TYPES as LAYERS
from d3gnn.plugins import Partitioner, Recomputing, Window, inlined
from d3gnn.testing import random_batches
from d3gnn.testing.pipelines import PipelineRun

SCHEMA = GraphSchema(features={"x": 3})


def test_plugins_of_a_script(spark: SparkSession, tmp_path: Path) -> None:
    # Local classes are pickled as those of a script or a notebook are, which no worker can import.
    class Doubled(Recomputing):
        name = "doubled"

        @staticmethod
        @inlined
        def accumulate(is_first, weight, message, total, params):  # type: ignore[no-untyped-def]
            for k in range(len(total)):
                total[k] += weight * message[k]

        @staticmethod
        @inlined
        def merge(is_first, partial, total, params):  # type: ignore[no-untyped-def]
            for k in range(len(total)):
                total[k] += partial[k]

        @staticmethod
        @inlined
        def finish(count, total, params, aggregate):  # type: ignore[no-untyped-def]
            for k in range(len(aggregate)):
                aggregate[k] = 2.0 * total[k]

        @staticmethod
        def aggregate(messages: Tensor, index: Tensor, size: int) -> Tensor:
            return 2.0 * messages.new_zeros((size, messages.shape[1])).index_add(0, index, messages)

    @dataclass(frozen=True)
    class ByTurns(Partitioner):
        name = "by_turns"

        @staticmethod
        @inlined
        def choose(u, v, hash_u, hash_v, placement, settings):  # type: ignore[no-untyped-def]
            return placement.load.sum() % len(placement.load)

    @dataclass(frozen=True)
    class Odd(Window):
        pause: float = 0.05
        name = "odd"

        @staticmethod
        @inlined
        def due_at(vertex, touches, total, now, numbers, sketch):  # type: ignore[no-untyped-def]
            return now if total % 2 else now + int(numbers[0])

        @property
        def numbers(self) -> tuple[float, ...]:
            return (self.pause * 1e6,)

        @property
        def longest(self) -> float:
            return self.pause

    class Halved(Layer):
        aggr = "sum"

        def __init__(self, width: int) -> None:
            super().__init__()
            self.width = self.in_width = self.out_width = self.message_width = self.root_width = width

        def message(self, x: Tensor) -> Tensor:
            return x / 2

        def root(self, x: Tensor) -> Tensor:
            return x

        def update(self, root: Tensor, aggregate: Tensor) -> Tensor:
            return root + aggregate

    class Largest(Head):
        def predict(self, embedding: Tensor) -> Tensor:
            score, best = embedding.max(1)
            return torch.stack([best.float(), score], 1)

    try:
        torch.manual_seed(1)
        model = GNN([Halved(3), SAGEConv(3, 4, aggr="doubled")], head=Largest())
        run = PipelineRun(spark, tmp_path, SCHEMA, 2, model=model, partitioner="by_turns", window=Odd())
        run.write(*random_batches(SCHEMA, seed=3, n_batches=3, batch_size=50, n_vertices=20))
        run.process_available()
        run.check_drained()
    finally:
        unregister_aggregation("doubled")
        del AGGREGATORS["doubled"], PARTITIONERS["by_turns"], WINDOWS["odd"]
        del LAYERS["Halved"], HEADS["Largest"]
