"""The models that benchmarks run, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from d3gnn.nn import GNN, GATConv, GATv2Conv, GCNConv, GINConv, GraphConv, Layer, SAGEConv
from d3gnn.nn.models import from_widths, two_linear

#: Factories of layers: (in_width, out_width, aggregator, activation). Attention uses 4 heads if they divide
#: the width.
_LAYERS: dict[str, Callable[[int, int, str, str | None], Layer]] = {
    "sage": lambda i, o, aggr, act: SAGEConv(i, o, aggr, act=act),
    "gcn": lambda i, o, _, act: GCNConv(i, o, act=act),
    "graphconv": lambda i, o, aggr, act: GraphConv(i, o, aggr, act=act),
    "gin": lambda i, o, aggr, act: GINConv(two_linear(i, o), aggr=aggr, act=act),
    "gat": lambda i, o, _, act: GATConv(i, o // _heads(o), _heads(o), act=act),
    "gatv2": lambda i, o, _, act: GATv2Conv(i, o // _heads(o), _heads(o), act=act),
}
MODELS = tuple(_LAYERS)
#: Default aggregators; layers that are missing here have a fixed one.
_DEFAULT_AGGREGATOR = {"sage": "mean", "graphconv": "sum", "gin": "sum"}


def make_model(name: str, widths: Sequence[int], aggregator: str | None = None, seed: int = 0) -> GNN:
    """A model of layers of one kind, with ReLU between them.

    >>> make_model("gat", [8, 16, 4])
    GNN(8 -> GATConv(attention) 16 -> GATConv(attention) 4)
    """
    if name not in _LAYERS:
        raise ValueError(f"model={name!r}: choose one of {', '.join(MODELS)}")
    if aggregator is not None and name not in _DEFAULT_AGGREGATOR:
        raise ValueError(f"model={name!r} has a fixed aggregator: remove aggregator={aggregator!r}")
    aggregator = aggregator or _DEFAULT_AGGREGATOR.get(name, "")
    make = _LAYERS[name]
    return from_widths(lambda i, o, act: make(i, o, aggregator, act), widths, seed=seed)


def _heads(width: int) -> int:
    return 4 if width % 4 == 0 else 1
