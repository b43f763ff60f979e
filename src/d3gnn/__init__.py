"""Streaming graph neural networks: exact embeddings of a graph that keeps changing."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from d3gnn import events, nn, windows
    from d3gnn.events import GraphSchema
    from d3gnn.kernel.alerts import Alerts
    from d3gnn.kernel.local import LocalEngine
    from d3gnn.kernel.partitioners import HDRF, Random
    from d3gnn.pipeline import StreamingGNN
    from d3gnn.spark.frames import from_edges, from_queries, latest
    from d3gnn.spark.metrics import latency, metrics
    from d3gnn.spark.session import session

__all__ = [
    "HDRF",
    "Alerts",
    "GraphSchema",
    "LocalEngine",
    "Random",
    "StreamingGNN",
    "events",
    "from_edges",
    "from_queries",
    "latency",
    "latest",
    "metrics",
    "nn",
    "session",
    "windows",
]
__version__ = "0.1.0"

# Imported when first used: torch and numba take seconds, which `d3gnn --help` need not wait for.
_HOMES = {
    "HDRF": "d3gnn.kernel.partitioners",
    "Alerts": "d3gnn.kernel.alerts",
    "GraphSchema": "d3gnn.events",
    "LocalEngine": "d3gnn.kernel.local",
    "Random": "d3gnn.kernel.partitioners",
    "StreamingGNN": "d3gnn.pipeline",
    "from_edges": "d3gnn.spark.frames",
    "from_queries": "d3gnn.spark.frames",
    "latency": "d3gnn.spark.metrics",
    "latest": "d3gnn.spark.frames",
    "metrics": "d3gnn.spark.metrics",
    "session": "d3gnn.spark.session",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in __all__:
        return import_module(f"d3gnn.{name}")
    raise AttributeError(f"module 'd3gnn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
