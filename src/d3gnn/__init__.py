"""Streaming graph neural networks: exact embeddings of a graph that changes."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from d3gnn import events, nn, windows
    from d3gnn.events import GraphSchema
    from d3gnn.kernel.alerts import Alerts
    from d3gnn.kernel.partitioners import HDRF, Random
    from d3gnn.pipeline import StreamingGNN
    from d3gnn.runtime.local import LocalEngine
    from d3gnn.runtime.metrics import latency, metrics
    from d3gnn.spark.frames import from_edges, from_queries
    from d3gnn.spark.frames_features import from_deletes, from_features, from_labels
    from d3gnn.spark.session import session
    from d3gnn.spark.tables import compact_output, latest
    from d3gnn.store.graph_log import GraphLog
    from d3gnn.training.settings import Training

__all__ = [
    "HDRF",
    "Alerts",
    "GraphLog",
    "GraphSchema",
    "LocalEngine",
    "Random",
    "StreamingGNN",
    "Training",
    "compact_output",
    "events",
    "from_deletes",
    "from_edges",
    "from_features",
    "from_labels",
    "from_queries",
    "latency",
    "latest",
    "metrics",
    "nn",
    "session",
    "verify",
    "windows",
]
__version__ = "0.1.0"

# Imported at first use: torch and numba take seconds to import, and `d3gnn --help` needs neither.
_MODULES = {
    "HDRF": "d3gnn.kernel.partitioners",
    "Alerts": "d3gnn.kernel.alerts",
    "GraphLog": "d3gnn.store.graph_log",
    "GraphSchema": "d3gnn.events",
    "LocalEngine": "d3gnn.runtime.local",
    "Random": "d3gnn.kernel.partitioners",
    "StreamingGNN": "d3gnn.pipeline",
    "Training": "d3gnn.training.settings",
    "compact_output": "d3gnn.spark.tables",
    "from_deletes": "d3gnn.spark.frames_features",
    "from_edges": "d3gnn.spark.frames",
    "from_features": "d3gnn.spark.frames_features",
    "from_labels": "d3gnn.spark.frames_features",
    "from_queries": "d3gnn.spark.frames",
    "latency": "d3gnn.runtime.metrics",
    "latest": "d3gnn.spark.tables",
    "metrics": "d3gnn.runtime.metrics",
    "session": "d3gnn.spark.session",
    "verify": "d3gnn.runtime.verify",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    if name in __all__:
        return import_module(f"d3gnn.{name}")
    raise AttributeError(f"module 'd3gnn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
