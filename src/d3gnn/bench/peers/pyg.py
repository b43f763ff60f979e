"""torch_geometric as in its documentation: `SAGEConv` over an edge index, and `k_hop_subgraph`."""

from __future__ import annotations

import torch
from torch import Tensor

from d3gnn.bench.live_graph import Change, LiveGraph
from d3gnn.bench.peers.base import Full, Influenced, Recomputing, import_library, unique
from d3gnn.nn import GNN
from d3gnn.nn.activation import activate
from d3gnn.types import Ints


class _Pyg(Recomputing):
    """PyG's `SAGEConv` with the weights of the model."""

    needs = "torch_geometric"

    def __init__(self, model: GNN, graph: LiveGraph) -> None:
        super().__init__(model, graph)
        sage_conv = import_library("torch_geometric.nn").SAGEConv
        self._convs = [sage_conv(layer.in_width, layer.out_width, layer.aggr) for layer in self.layers]
        for conv, layer in zip(self._convs, self.layers, strict=True):
            conv.load_state_dict(layer.state_dict())

    def edges(self) -> Tensor:
        return torch.stack([torch.from_numpy(self.graph.src), torch.from_numpy(self.graph.dst)])

    def compute(self, x: Tensor, edges: Tensor) -> Tensor:
        for conv, layer in zip(self._convs, self.layers, strict=True):
            x = activate(layer.act, conv(x, edges))
        return x

    def forward(self) -> Tensor:
        return self.compute(torch.from_numpy(self.graph.inputs), self.edges())


class PygFull(_Pyg, Full):
    """Recomputes all vertices with torch_geometric."""

    name = "pyg_full"


class PygInfluenced(_Pyg, Influenced):
    """Recomputes influenced vertices with torch_geometric: `k_hop_subgraph` forwards, then backwards."""

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
