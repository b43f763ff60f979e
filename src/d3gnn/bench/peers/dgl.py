"""DGL as in its user guide: message passing on a graph, and its full-neighbourhood sampler."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from d3gnn.bench.live_graph import Change, LiveGraph
from d3gnn.bench.peers.base import Full, Influenced, Recomputing, import_library, unique
from d3gnn.nn import GNN
from d3gnn.nn.activation import activate
from d3gnn.types import Ints


class _Dgl(Recomputing):
    """DGL's `SAGEConv` with the weights of the model; sum aggregation, which it lacks, uses `update_all`.

    DGL graphs are immutable, so each batch creates one from the list of edges. That is cheap by itself: DGL
    builds the CSR and CSC formats on first use.
    """

    needs = "dgl"

    def __init__(self, model: GNN, graph: LiveGraph) -> None:
        super().__init__(model, graph)
        # DGL has its own thread count.
        self.library.utils.set_num_threads(torch.get_num_threads())
        self._functions = import_library("dgl.function")
        sage_conv = import_library("dgl.nn.pytorch").SAGEConv
        self._convs = [sage_conv(sage.in_width, sage.out_width, "mean") for sage in self.layers]
        for conv, sage in zip(self._convs, self.layers, strict=True):
            conv.fc_neigh.weight, conv.fc_self.weight = sage.lin_l.weight, sage.lin_r.weight
            conv.fc_self.bias = sage.lin_l.bias

    def current_graph(self) -> Any:
        """The current graph as a DGL graph."""
        graph = self.graph
        edges = (torch.from_numpy(graph.src), torch.from_numpy(graph.dst))
        return self.library.graph(edges, num_nodes=len(graph))

    def layer(self, i: int, graph: Any, x: Tensor) -> Tensor:
        """The outputs of layer i at the destinations of the graph."""
        sage, fn = self.layers[i], self._functions
        if sage.aggr == "mean":
            return activate(sage.act, self._convs[i](graph, x))
        with graph.local_scope():
            graph.srcdata["m"] = sage.message(x)
            graph.update_all(fn.copy_u("m", "m"), fn.sum("m", "a"))
            aggregate = graph.dstdata["a"]
        return sage.update(sage.root(x[: len(aggregate)]), aggregate)

    def forward(self) -> Tensor:
        graph, x = self.current_graph(), torch.from_numpy(self.graph.inputs)
        for i in range(len(self.layers)):
            x = self.layer(i, graph, x)
        return x


class DglFull(_Dgl, Full):
    """Recomputes all vertices with DGL."""

    name = "dgl_full"


class DglInfluenced(_Dgl, Influenced):
    """Recomputes influenced vertices with DGL, on blocks from its full-neighbourhood sampler."""

    name = "dgl_influenced"

    def recompute(self, change: Change) -> tuple[Ints, Tensor]:
        graph, layers = self.current_graph(), len(self.layers)
        targets = torch.from_numpy(change.targets)
        reached = torch.from_numpy(change.inputs)
        for _ in range(layers):
            reached = unique([reached, graph.out_edges(reached)[1], targets])
        sampler = self.library.dataloading.MultiLayerFullNeighborSampler(layers)
        needed, found, blocks = sampler.sample_blocks(graph, reached)
        x = torch.from_numpy(self.graph.inputs)[needed]
        for i, block in enumerate(blocks):
            x = self.layer(i, block, x)
        rows: Ints = np.asarray(found)
        return rows, x
