"""A forward pass of a model over the parts of all ranks, whose gradient is that of the whole graph.

Rows of vertices are computed where their masters are: message, root and update. Messages travel to the parts
that hold the edges, partial aggregates back. See docs/training.md.
"""

from __future__ import annotations

from typing import cast

import numpy as np
import torch
from torch import Tensor

from d3gnn.nn.aggregation import aggregation
from d3gnn.nn.layer import Layer
from d3gnn.nn.model import GNN
from d3gnn.training.messages import attention_messages, best_messages, sum_messages
from d3gnn.training.rank_graph import LayerEdges, RankGraph
from d3gnn.training.row_modules import RowModules


def forward(model: GNN, graph: RankGraph, modules: RowModules | None = None) -> Tensor:
    """The embeddings of this rank's masters: [masters, out_channels].

    `modules` are the modules of the model that read several rows, or draw numbers, in training.
    """
    x = graph.x
    for number, layer in enumerate(cast("list[Layer]", list(model._layers))):
        if modules is not None and number:
            x = modules.between(x, number)
        x = layer_rows(layer, x, graph, weighted=model.degrees is not None and model.degrees.edge_width > 0)
    return x


def layer_rows(layer: Layer, x: Tensor, graph: RankGraph, *, weighted: bool) -> Tensor:
    """The output of one layer for this rank's masters; as `d3gnn.nn.forward.layer_forward`."""
    on = graph.edges(loops=not layer.skips_self_loops, reads_destination=layer.reads_destination)
    if layer.needs_degree:
        x = torch.cat([x, graph.degrees(weighted)], 1)
    message = layer.message(x)
    root = message if layer.sends_input else layer.root(x)
    values = on.sources.spread(message)
    return layer.update(root, _aggregate(layer, values, _edge_values(layer, on), on, graph))


def _edge_values(layer: Layer, on: LayerEdges) -> Tensor | None:
    """What each edge contributes to its message: [edges, edge_width]."""
    if not layer.edge_width:
        return None
    known = np.where(np.isnan(on.features), np.float32(layer.edge_default), on.features)
    return layer.edge(torch.from_numpy(known))


def _aggregate(layer: Layer, values: Tensor, edge: Tensor | None, on: LayerEdges, graph: RankGraph) -> Tensor:
    """The aggregates of this rank's masters, by each of the layer's aggregations, side by side."""
    if layer.attention is not None:
        return attention_messages(layer.attention, values, edge, on)
    edges = on.edges
    if layer.makes_edge_messages:
        source, destination = on.ends
        both = values[source], values[destination if layer.reads_destination else source]
        none = values.new_zeros((len(source), 0))
        values, edge, edges = layer.edge_message(*both, none if edge is None else edge), None, on.by_edge
    columns = []
    total = None  # of sum and mean
    for name in layer.aggr.split(","):
        if name in ("sum", "mean"):
            if total is None:
                total = on.destinations.collect(sum_messages(values, edge, edges))
            columns.append(total * on.per_message if name == "mean" else total)
        elif name in ("max", "min"):
            sign = 1 if name == "max" else -1
            columns.append(best_messages(sign, values, edge, on, edges))
        else:
            columns.append(_custom(name, values, edge, on, edges is on.edges, graph))
    return columns[0] if len(columns) == 1 else torch.cat(columns, 1)


def _custom(
    name: str, values: Tensor, edge: Tensor | None, on: LayerEdges, by_source: bool, graph: RankGraph
) -> Tensor:
    """A custom aggregation, which is defined for all messages of a vertex at once."""
    if graph.ranks.size > 1:
        raise NotImplementedError(
            f"the aggregation {name!r} cannot be trained by several ranks: only sum, mean, max, min and "
            "attention are defined on partial aggregates. Train with one rank"
        )
    source, destination = on.masters
    messages = values[source] if by_source else values
    if edge is not None:
        messages = messages * edge
    return aggregation(name)(messages, destination, graph.masters)
