"""The public names. A change of them changes this test and the changelog."""

from __future__ import annotations

import importlib
import inspect

import pytest

import d3gnn

PUBLIC = {
    "d3gnn": [
        "GraphLog",
        "HDRF", "Alerts", "GraphSchema", "LocalEngine", "Random", "StreamingGNN", "Training", "events",
        "compact_output", "from_deletes", "from_edges", "from_features", "from_labels", "from_queries",
        "latency", "latest", "metrics", "nn", "session", "verify", "windows",
    ],
    "d3gnn.events": [
        "EdgeMode", "Element", "Event", "EventBatch", "GraphSchema", "Key", "Op", "Reason", "delete_edge",
        "delete_edge_feature", "delete_feature", "delete_label", "delete_vertex", "edge", "edge_feature",
        "feature", "from_deletes", "from_edges", "from_features", "from_labels", "from_queries", "label",
        "query", "validate", "vertex",
    ],
    "d3gnn.nn": [
        "GNN", "GraphSAGE", "GCN", "GAT", "GIN", "from_pyg", "UnsupportedModelError",
        "Layer", "SAGEConv", "GCNConv", "GraphConv", "GINConv", "GATConv", "GATv2Conv", "Stage",
        "Head", "Classifier", "Regressor", "PairHead", "LinkPredictor", "Similarity",
    ],
    "d3gnn.training": [
        "AfterLabels", "Detector", "Every", "OnDrift", "Scoring", "Training", "Trigger",
    ],
    "d3gnn.windows": ["AdaptiveSession", "Count", "Session", "Tumbling", "Window"],
    "d3gnn.testing": ["Oracle", "OracleChecker", "event_batches", "random_batches", "schemas"],
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names(name: str) -> None:
    module = importlib.import_module(name)
    assert sorted(module.__all__) == sorted(PUBLIC[name])
    for public in module.__all__:
        assert hasattr(module, public)


@pytest.mark.parametrize("name", PUBLIC)
def test_public_things_have_a_docstring(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__doc__
    for public in module.__all__:
        thing = getattr(module, public)
        if inspect.isclass(thing) or inspect.isfunction(thing):
            assert thing.__doc__, f"{name}.{public} has no docstring"


def test_the_version_is_that_of_the_package() -> None:
    from importlib.metadata import version

    assert d3gnn.__version__ == version("d3gnn")
