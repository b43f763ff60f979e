"""torch_geometric, as its guide has it: `SAGEConv` over a list of edges, and subgraphs of some hops."""

from __future__ import annotations

import torch
from torch import Tensor

from d3gnn.bench.live_graph import Change, LiveGraph
from d3gnn.bench.peers.base import Full, Influenced, Recomputing, import_library, unique
from d3gnn.nn import GNN
from d3gnn.nn.layer import activate
from d3gnn.types import Ints


class _Pyg(Recomputing):
    """`SAGEConv` with the model's weights."""

    needs = "torch_geometric"

    def __init__(self, model: GNN, graph: LiveGraph) -> None:
        super().__init__(model, graph)
        conv = import_library("torch_geometric.nn").SAGEConv
        self._convs = [conv(layer.in_width, layer.out_width, layer.aggregator) for layer in self.layers]
        for made, layer in zip(self._convs, self.layers, strict=True):
            made.load_state_dict(layer.state_dict())

    def edges(self) -> Tensor:
        return torch.stack([torch.from_numpy(self.graph.src), torch.from_numpy(self.graph.dst)])

    def compute(self, x: Tensor, edges: Tensor) -> Tensor:
        for conv, layer in zip(self._convs, self.layers, strict=True):
            x = activate(layer.activation, conv(x, edges))
        return x

    def forward(self) -> Tensor:
        return self.compute(torch.from_numpy(self.graph.inputs), self.edges())


class PygFull(_Pyg, Full):
    """Everything after each batch, with torch_geometric."""

    name = "pyg_full"


class PygInfluenced(_Pyg, Influenced):
    """What a batch has influenced, with torch_geometric: `k_hop_subgraph` forwards, then backwards."""

    name = "pyg_influenced"

    def recompute(self, change: Change) -> tuple[Ints, Tensor]:
        utils, edges = import_library("torch_geometric.utils"), self.edges()
        hops, n = len(self.layers), len(self.graph)
        targets, reached = torch.from_numpy(change.targets), torch.from_numpy(change.inputs)
        for _ in range(hops):
            further = utils.k_hop_subgraph(reached, 1, edges, num_nodes=n, flow="target_to_source")[0]
            reached = unique([further, targets])
        needed, inside, places, _ = utils.k_hop_subgraph(
            reached, hops, edges, relabel_nodes=True, num_nodes=n
        )
        found = self.compute(torch.from_numpy(self.graph.inputs)[needed], inside)[places]
        rows: Ints = reached.numpy()
        return rows, found
