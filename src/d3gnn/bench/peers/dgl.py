"""DGL, as its guide has it: a graph, its message passing, and its sampler of whole neighbourhoods."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from d3gnn.bench.live_graph import Change, LiveGraph
from d3gnn.bench.peers.base import Full, Influenced, Recomputing, import_library, unique
from d3gnn.nn import GNN
from d3gnn.nn.layer import activate
from d3gnn.types import Ints


class _Dgl(Recomputing):
    """Its `SAGEConv` with the model's weights; it has no sum, so that is a module of its own here.

    A graph of DGL's does not change: after each batch it is made from the list of edges, which costs nothing
    by itself; what it needs to be gone through by source or by destination, DGL makes when it is asked.
    """

    needs = "dgl"

    def __init__(self, model: GNN, graph: LiveGraph) -> None:
        super().__init__(model, graph)
        # DGL counts its threads apart from torch.
        self.library.utils.set_num_threads(torch.get_num_threads())
        self._functions = import_library("dgl.function")
        conv = import_library("dgl.nn.pytorch").SAGEConv
        self._convs = [conv(sage.in_width, sage.out_width, "mean") for sage in self.layers]
        for made, sage in zip(self._convs, self.layers, strict=True):
            made.fc_neigh.weight, made.fc_self.weight = sage.lin_l.weight, sage.lin_r.weight
            made.fc_self.bias = sage.lin_l.bias

    def made(self) -> Any:
        """The graph as it is."""
        graph = self.graph
        edges = (torch.from_numpy(graph.src), torch.from_numpy(graph.dst))
        return self.library.graph(edges, num_nodes=len(graph))

    def layer(self, i: int, graph: Any, x: Tensor) -> Tensor:
        """The values of the graph's destinations after layer i."""
        sage, fn = self.layers[i], self._functions
        if sage.aggregator == "mean":
            return activate(sage.activation, self._convs[i](graph, x))
        with graph.local_scope():
            graph.srcdata["m"] = sage.message(x)
            graph.update_all(fn.copy_u("m", "m"), fn.sum("m", "a"))
            aggregate = graph.dstdata["a"]
        return sage.update(sage.root(x[: len(aggregate)]), aggregate)

    def forward(self) -> Tensor:
        graph, x = self.made(), torch.from_numpy(self.graph.inputs)
        for i in range(len(self.layers)):
            x = self.layer(i, graph, x)
        return x


class DglFull(_Dgl, Full):
    """Everything after each batch, with DGL."""

    name = "dgl_full"


class DglInfluenced(_Dgl, Influenced):
    """What a batch has influenced, with DGL: its sampler takes whole neighbourhoods, layer by layer."""

    name = "dgl_influenced"

    def recompute(self, change: Change) -> tuple[Ints, Tensor]:
        graph, layers = self.made(), len(self.layers)
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
