"""DGL: forward passes with its fused message passing."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from d3gnn.bench.live_graph import LiveGraph
from d3gnn.bench.peers.base import Block, Full, Influenced, Recomputing
from d3gnn.nn import GNN


class _Dgl(Recomputing):
    """The model's layers over DGL's message passing.

    What a layer does to each vertex is the model's own code, which is that of DGL's `SAGEConv` with fewer
    copies. DGL's mean makes one too: its sum, divided in place, takes half the time.
    """

    needs = "dgl"

    def __init__(self, model: GNN, graph: LiveGraph) -> None:
        super().__init__(model, graph)
        # DGL counts its threads apart from torch.
        self.library.utils.set_num_threads(torch.get_num_threads())
        self._numbers = torch.empty(0, dtype=torch.int32)

    def adjacency(self, block: Block) -> Any:
        begins, sources = torch.from_numpy(block.begins), torch.from_numpy(block.sources)
        # DGL can do without the edges' numbers, but crashes where rows are long enough to be cut in pieces.
        if len(sources) > len(self._numbers):
            self._numbers = torch.arange(2 * len(sources), dtype=sources.dtype)
        columns = ("csc", (begins, sources, self._numbers[: len(sources)]))
        made = self.library.create_block(columns, num_src_nodes=block.inputs, num_dst_nodes=block.outputs)
        return made, begins.diff().clamp_(min=1).unsqueeze(1)

    def compute(self, layer: int, adjacency: Any, x: Tensor) -> Tensor:
        (block, degrees), sage = adjacency, self.layers[layer]
        aggregate = self.library.ops.copy_u_sum(block, sage.message(x))
        if sage.aggregator == "mean":
            aggregate.div_(degrees)
        return sage.update(sage.root(x[: len(aggregate)]), aggregate)


class DglFull(_Dgl, Full):
    """Everything after each batch, with DGL."""

    name = "dgl_full"


class DglInfluenced(_Dgl, Influenced):
    """What a batch has influenced, with DGL."""

    name = "dgl_influenced"
