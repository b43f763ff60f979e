"""The public names, locked: whoever changes them says so here and in the changelog."""

from __future__ import annotations

import importlib
import inspect

import pytest

import d3gnn

PUBLIC = {
    "d3gnn": [
        "HDRF", "Alerts", "GraphSchema", "LocalEngine", "Random", "StreamingGNN", "events", "from_edges",
        "from_queries",
        "latency", "latest", "metrics", "nn", "session", "windows",
    ],
    "d3gnn.events": [
        "DEFAULT_FEATURE", "NO_TIME", "EdgeMode", "Element", "Event", "EventBatch", "GraphSchema", "IntKeys",
        "Key", "Keys", "Op", "Reason", "StringKeys", "check", "concat_keys", "delete_edge", "delete_feature",
        "delete_vertex", "edge", "edge_feature", "feature", "feature_index", "from_edges", "from_queries",
        "keys_from_arrow", "keys_of", "label", "order", "query", "validate", "vertex",
    ],
    "d3gnn.nn": [
        "GAT", "GATv2", "GCN", "GIN", "GNN", "GraphConv", "SAGE", "Stage", "GraphSAGE", "Layer", "CannotTake",
        "Classifier", "Head", "LinkPredictor", "PairHead", "Regressor", "Similarity",
        "from_pyg",
    ],
    "d3gnn.windows": ["AdaptiveSession", "Count", "Session", "Tumbling", "Window"],
    "d3gnn.testing": ["Witness", "event_batches", "random_batches", "schemas"],
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names(name: str) -> None:
    module = importlib.import_module(name)
    assert sorted(module.__all__) == sorted(PUBLIC[name])
    for public in module.__all__:
        assert hasattr(module, public)


@pytest.mark.parametrize("name", PUBLIC)
def test_what_is_public_says_what_it_is(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__doc__
    for public in module.__all__:
        thing = getattr(module, public)
        if inspect.isclass(thing) or inspect.isfunction(thing):
            assert thing.__doc__, f"{name}.{public} has no docstring"


def test_the_version_is_that_of_the_package() -> None:
    from importlib.metadata import version

    assert d3gnn.__version__ == version("d3gnn")
