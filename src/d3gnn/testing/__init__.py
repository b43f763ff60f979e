"""Helpers for tests: random event streams, and comparison of engines with the oracle.

`OracleChecker` and `random_batches` have no extra requirements. `schemas` and `event_batches` are hypothesis
strategies and need `pip install hypothesis`. `d3gnn.testing.pipelines` tests pipelines on Spark.

>>> from d3gnn import GraphSchema, LocalEngine
>>> from d3gnn.nn import GraphSAGE
>>> schema = GraphSchema(features={"x": 2})
>>> checker = OracleChecker(LocalEngine(GraphSAGE(2, 4, 2, 4, seed=0), schema=schema))
>>> for batch in random_batches(schema, seed=1, n_batches=3, batch_size=50, n_vertices=20):
...     updates = checker.apply(batch)  # raises AssertionError if any embedding is wrong
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from d3gnn.oracle import Oracle
from d3gnn.testing.oracle_checker import OracleChecker
from d3gnn.testing.streams import random_batches

if TYPE_CHECKING:
    from d3gnn.testing.strategies import event_batches, schemas

__all__ = ["Oracle", "OracleChecker", "event_batches", "random_batches", "schemas"]

_STRATEGIES = ("event_batches", "schemas")


def __getattr__(name: str) -> Any:
    if name in _STRATEGIES:
        return getattr(import_module("d3gnn.testing.strategies"), name)
    raise AttributeError(f"module 'd3gnn.testing' has no attribute {name!r}")
