"""Models to measure, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch

from d3gnn.nn import GAT, GCN, GIN, GNN, SAGE, GATv2, GraphConv, Layer

#: From two widths, an aggregator and an activation to a layer; attention has 4 heads where they fit.
_LAYERS: dict[str, Callable[[int, int, str, str | None], Layer]] = {
    "sage": lambda i, o, aggregator, act: SAGE(i, o, aggregator, act),
    "gcn": lambda i, o, _, act: GCN(i, o, act),
    "graphconv": lambda i, o, aggregator, act: GraphConv(i, o, aggregator, act),
    "gin": lambda i, o, aggregator, act: GIN(i, o, aggregator, act),
    "gat": lambda i, o, _, act: GAT(i, o // _heads(o), _heads(o), act),
    "gatv2": lambda i, o, _, act: GATv2(i, o // _heads(o), _heads(o), act),
}
MODELS = tuple(_LAYERS)
#: What joins messages, unless told otherwise.
_USUAL = {"sage": "mean", "graphconv": "sum", "gin": "sum"}


def make_model(name: str, widths: Sequence[int], aggregator: str | None = None, seed: int = 0) -> GNN:
    """Layers of one kind, with a relu between them.

    >>> make_model("gat", [8, 16, 4])
    GNN(8 -> GAT(attention) 16 -> GAT(attention) 4)
    """
    if name not in _LAYERS:
        raise ValueError(f"model={name!r}: choose one of {', '.join(MODELS)}")
    if aggregator is not None and name not in _USUAL:
        raise ValueError(f"model={name!r} has an aggregator of its own; leave out {aggregator!r}")
    joins = aggregator or _USUAL.get(name, "")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        last = len(widths) - 2
        return GNN(
            _LAYERS[name](i, o, joins, "relu" if place < last else None)
            for place, (i, o) in enumerate(pairwise(widths))
        )


def _heads(width: int) -> int:
    return 4 if width % 4 == 0 else 1
