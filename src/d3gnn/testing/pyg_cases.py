"""Models of PyG that cover every variant of every layer, to compare with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn

from d3gnn.events import EdgeMode, GraphSchema
from d3gnn.oracle import Oracle


class Case(NamedTuple):
    """A model of PyG, and the features of its edges."""

    make: Callable[[], nn.Module]
    edge_weight: bool = False
    edge_width: int = 0
    tolerance: float = 1e-5


def _two(conv: Callable[[int, int], nn.Module], **kwargs: Any) -> Case:
    """Two layers of one type, with 3, 4 and 2 channels."""
    beside = "edge_weight" if kwargs.get("edge_weight") else "edge_attr" if kwargs.get("edge_width") else ""
    signature = f"x, edge_index{', ' + beside if beside else ''} -> x"
    arguments = f"x, edge_index{', ' + beside if beside else ''}"

    def make() -> nn.Module:
        made: nn.Module = pyg.Sequential(
            arguments, [(conv(3, 4), signature), nn.Tanh(), (conv(4, 2), signature)]
        )
        return made

    return Case(make, **kwargs)


def _basic(kind: str, **settings: Any) -> Case:
    def make() -> nn.Module:
        model: nn.Module = getattr(pyg, kind)(3, 4, num_layers=3, out_channels=2, **settings)
        for module in model.modules():
            if isinstance(module, nn.BatchNorm1d):
                assert module.running_mean is not None
                assert module.running_var is not None
                module.running_mean.uniform_(-0.2, 0.2)
                module.running_var.uniform_(0.5, 1.5)
        return model

    return Case(make, tolerance=1e-4 if kind == "GAT" else 1e-5)


def _mlp(i: int, o: int) -> nn.Module:
    return nn.Sequential(nn.Linear(i, 3), nn.ELU(), nn.Linear(3, o))


_ATTENTION = 1e-4
#: For each layer, every variant that PyG has.
CASES: dict[str, dict[str, Case]] = {
    "SAGEConv": {
        "mean": _two(lambda i, o: pyg.SAGEConv(i, o)),
        "sum": _two(lambda i, o: pyg.SAGEConv(i, o, aggr="sum")),
        "max": _two(lambda i, o: pyg.SAGEConv(i, o, aggr="max")),
        "min": _two(lambda i, o: pyg.SAGEConv(i, o, aggr="min")),
        "several": _two(lambda i, o: pyg.SAGEConv(i, o, aggr=["mean", "max", "add"])),
        "normalize": _two(lambda i, o: pyg.SAGEConv(i, o, normalize=True)),
        "no root": _two(lambda i, o: pyg.SAGEConv(i, o, root_weight=False, bias=False)),
        "project": _two(lambda i, o: pyg.SAGEConv(i, o, project=True)),
        "max, project, no root": _two(
            lambda i, o: pyg.SAGEConv(i, o, aggr="max", project=True, root_weight=False)
        ),
    },
    "GCNConv": {
        "plain": _two(lambda i, o: pyg.GCNConv(i, o)),
        "improved": _two(lambda i, o: pyg.GCNConv(i, o, improved=True)),
        "no loops": _two(lambda i, o: pyg.GCNConv(i, o, add_self_loops=False, bias=False)),
        "not normalised": _two(lambda i, o: pyg.GCNConv(i, o, normalize=False)),
        "weighted": _two(lambda i, o: pyg.GCNConv(i, o), edge_weight=True),
        "weighted, improved": _two(lambda i, o: pyg.GCNConv(i, o, improved=True), edge_weight=True),
        "weighted, no loops": _two(lambda i, o: pyg.GCNConv(i, o, add_self_loops=False), edge_weight=True),
        "weighted, not normalised": _two(lambda i, o: pyg.GCNConv(i, o, normalize=False), edge_weight=True),
    },
    "GraphConv": {
        "sum": _two(lambda i, o: pyg.GraphConv(i, o)),
        "mean": _two(lambda i, o: pyg.GraphConv(i, o, aggr="mean", bias=False)),
        "max": _two(lambda i, o: pyg.GraphConv(i, o, aggr="max")),
        "weighted": _two(lambda i, o: pyg.GraphConv(i, o), edge_weight=True),
        "weighted mean": _two(lambda i, o: pyg.GraphConv(i, o, aggr="mean"), edge_weight=True),
        "weighted max": _two(lambda i, o: pyg.GraphConv(i, o, aggr="max"), edge_weight=True),
    },
    "GINConv": {
        "plain": _two(lambda i, o: pyg.GINConv(_mlp(i, o))),
        "eps": _two(lambda i, o: pyg.GINConv(_mlp(i, o), eps=0.3, train_eps=True)),
        "max": _two(lambda i, o: pyg.GINConv(_mlp(i, o), aggr="max")),
    },
    "GATConv": {
        "one head": _two(lambda i, o: pyg.GATConv(i, o), tolerance=_ATTENTION),
        "heads": _two(lambda i, o: pyg.GATConv(i, o // 2, heads=2), tolerance=_ATTENTION),
        "mean of heads": _two(lambda i, o: pyg.GATConv(i, o, heads=3, concat=False), tolerance=_ATTENTION),
        "no loops": _two(lambda i, o: pyg.GATConv(i, o, add_self_loops=False), tolerance=_ATTENTION),
        "residual": _two(lambda i, o: pyg.GATConv(i, o, residual=True, bias=False), tolerance=_ATTENTION),
        "edges": _two(
            lambda i, o: pyg.GATConv(i, o // 2, heads=2, edge_dim=2), edge_width=2, tolerance=_ATTENTION
        ),
        "edges, filled": _two(
            lambda i, o: pyg.GATConv(i, o, edge_dim=2, fill_value=0.5), edge_width=2, tolerance=_ATTENTION
        ),
    },
    "GATv2Conv": {
        "one head": _two(lambda i, o: pyg.GATv2Conv(i, o), tolerance=_ATTENTION),
        "heads": _two(lambda i, o: pyg.GATv2Conv(i, o // 2, heads=2), tolerance=_ATTENTION),
        "shared": _two(
            lambda i, o: pyg.GATv2Conv(i, o, heads=2, concat=False, share_weights=True), tolerance=_ATTENTION
        ),
        "no loops": _two(lambda i, o: pyg.GATv2Conv(i, o, add_self_loops=False), tolerance=_ATTENTION),
        "residual": _two(lambda i, o: pyg.GATv2Conv(i, o, residual=True), tolerance=_ATTENTION),
        "edges": _two(
            lambda i, o: pyg.GATv2Conv(i, o // 2, heads=2, edge_dim=2), edge_width=2, tolerance=_ATTENTION
        ),
        "edges, filled": _two(
            lambda i, o: pyg.GATv2Conv(i, o, edge_dim=2, fill_value=0.5), edge_width=2, tolerance=_ATTENTION
        ),
    },
    "Stage": {
        "GraphSAGE": _basic("GraphSAGE", norm="batch_norm"),
        "GraphSAGE, activation first": _basic("GraphSAGE", norm="batch_norm", act_first=True, act="elu"),
        "GraphSAGE, cat": _basic("GraphSAGE", jk="cat"),
        "GraphSAGE, max": _basic("GraphSAGE", jk="max"),
        "GraphSAGE, last": _basic("GraphSAGE", jk="last", norm="batch_norm"),
        "GCN": _basic("GCN", norm="batch_norm", dropout=0.5),
        "GCN, cat": _basic("GCN", jk="cat"),
        "GIN": _basic("GIN", norm="batch_norm"),
        "GIN, max": _basic("GIN", jk="max"),
        "GAT": _basic("GAT", heads=2),
        "GAT, cat": _basic("GAT", heads=2, jk="cat", v2=True),
    },
}


def arguments_of(case: Case, oracle: Oracle) -> list[Tensor]:
    """The arguments of the model's forward pass over the oracle's graph."""
    src, dst = oracle.edge_index()
    arguments: list[Tensor] = [torch.from_numpy(oracle.inputs()), torch.from_numpy(np.stack([src, dst]))]
    if case.edge_weight or case.edge_width:
        values = torch.from_numpy(oracle.edge_values())
        values = torch.where(values.isnan(), 1.0 if case.edge_weight else 0.0, values)
        if case.edge_weight:
            heaviest_loops_last = torch.argsort(values[:, 0], stable=True)
            arguments[1], values = arguments[1][:, heaviest_loops_last], values[heaviest_loops_last]
        arguments.append(values[:, 0] if case.edge_weight else values)
    return arguments


def static(case: Case, model: nn.Module, oracle: Oracle) -> dict[Any, Any]:
    """The output of PyG for the final graph."""
    with torch.inference_mode():
        out = model(*arguments_of(case, oracle)).numpy()
    return dict(zip(oracle.vertices, out, strict=True))


def schema_of(case: Case, edges: EdgeMode, directed: bool) -> GraphSchema:
    """The schema of a graph for a case."""
    features = {"w": 1} if case.edge_weight else {"e": case.edge_width} if case.edge_width else {}
    return GraphSchema(
        edges=edges, directed=directed, features={"x": 3}, edge_features=features, missing="hash"
    )
