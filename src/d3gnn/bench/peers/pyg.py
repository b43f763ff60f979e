"""torch_geometric: forward passes with its `SAGEConv` over a sparse matrix."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from d3gnn.bench.live_graph import LiveGraph
from d3gnn.bench.peers.base import Block, Full, Influenced, Recomputing, import_library
from d3gnn.nn import GNN
from d3gnn.nn.layer import activate


class _Pyg(Recomputing):
    """`SAGEConv` with the model's weights.

    It sums over a CSR matrix, whose numbers are 1 over the degree where the aggregator is the mean: that
    takes a third of the time that a list of edges does, and less than its own mean over the same matrix.
    """

    needs = "torch_geometric"

    def __init__(self, model: GNN, graph: LiveGraph) -> None:
        super().__init__(model, graph)
        conv = import_library("torch_geometric.nn").SAGEConv
        self._convs = [conv(layer.in_width, layer.out_width, aggr="sum") for layer in self.layers]
        for made, layer in zip(self._convs, self.layers, strict=True):
            made.load_state_dict(layer.state_dict())

    def adjacency(self, block: Block) -> dict[str, Tensor]:
        begins, sources = torch.from_numpy(block.begins), torch.from_numpy(block.sources)
        degrees, matrices = begins.diff(), {}
        for aggregator in {layer.aggregator for layer in self.layers}:
            numbers = torch.ones(len(sources))
            if aggregator == "mean":
                numbers = (1 / degrees).repeat_interleave(degrees, output_size=len(sources))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch calls its CSR matrices a beta
                matrices[aggregator] = torch.sparse_csr_tensor(
                    begins, sources, numbers, (block.outputs, block.inputs), check_invariants=False
                )
        return matrices

    def compute(self, layer: int, adjacency: Any, x: Tensor) -> Tensor:
        matrix = adjacency[self.layers[layer].aggregator]
        out: Tensor = self._convs[layer]((x, x[: len(matrix)]), matrix)
        return activate(self.layers[layer].activation, out)


class PygFull(_Pyg, Full):
    """Everything after each batch, with torch_geometric."""

    name = "pyg_full"


class PygInfluenced(_Pyg, Influenced):
    """What a batch has influenced, with torch_geometric."""

    name = "pyg_influenced"
