"""DGL's kernels with hand-optimised preprocessing: an estimate of the best that DGL can reach.

DGL sorts the list of edges again after each batch, and so do the look-ups of its sampler. Here a compiled
counting sort takes a quarter of that time, neighbours are found by one scan over the list of edges, and the
mean is a sum that is divided in place.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from d3gnn.bench.live_graph import Change, LiveGraph
from d3gnn.bench.peers.base import Full, Influenced, Recomputing
from d3gnn.bench.peers.blocks import Block, block_of
from d3gnn.nn import GNN
from d3gnn.types import Bools, Ints


class _Tuned(Recomputing):
    needs = "dgl"

    def __init__(self, model: GNN, graph: LiveGraph) -> None:
        super().__init__(model, graph)
        # DGL has its own thread count.
        self.library.utils.set_num_threads(torch.get_num_threads())
        self._edge_ids = torch.empty(0, dtype=torch.int32)

    def adjacency(self, block: Block) -> tuple[Any, Tensor]:
        """The block as a DGL block, and the in-degree of each output."""
        begins, sources = torch.from_numpy(block.begins), torch.from_numpy(block.sources)
        # Edge ids are optional in DGL, but without them it crashes on rows long enough to be split.
        if len(sources) > len(self._edge_ids):
            self._edge_ids = torch.arange(2 * len(sources), dtype=sources.dtype)
        columns = ("csc", (begins, sources, self._edge_ids[: len(sources)]))
        dgl_block = self.library.create_block(
            columns, num_src_nodes=block.inputs, num_dst_nodes=block.outputs
        )
        return dgl_block, begins.diff().clamp_(min=1).unsqueeze(1)

    def compute(self, layer: int, adjacency: tuple[Any, Tensor], x: Tensor) -> Tensor:
        """The outputs of a layer, from the values of its inputs."""
        (block, degrees), sage = adjacency, self.layers[layer]
        aggregate = self.library.ops.copy_u_sum(block, sage.message(x))
        if sage.aggr == "mean":
            aggregate.div_(degrees)
        return sage.update(sage.root(x[: len(aggregate)]), aggregate)

    def forward(self) -> Tensor:
        graph = self.graph
        adjacency = self.adjacency(block_of(graph.src, graph.dst, len(graph), len(graph)))
        x = torch.from_numpy(graph.inputs)
        for i in range(len(self.layers)):
            x = self.compute(i, adjacency, x)
        return x


class TunedFull(_Tuned, Full):
    """Recomputes all vertices with DGL's kernels."""

    name = "tuned_full"


class TunedInfluenced(_Tuned, Influenced):
    """Recomputes influenced vertices with DGL's kernels."""

    name = "tuned_influenced"

    def recompute(self, change: Change) -> tuple[Ints, Tensor]:
        layers = len(self.layers)
        rows = np.flatnonzero(influenced(self.graph, change, layers))
        needed, blocks = neighbourhood(self.graph, rows, layers)
        x = torch.from_numpy(self.graph.inputs[needed])
        for i, block in enumerate(blocks):
            x = self.compute(i, self.adjacency(block), x)
        return rows, x


def influenced(graph: LiveGraph, change: Change, layers: int) -> Bools:
    """Mask of the vertices whose embeddings the change can affect: one more hop per layer."""
    reached = np.zeros(len(graph), np.bool_)
    reached[change.inputs] = True
    for _ in range(layers):
        following = np.zeros(0, np.int64)
        if reached.any():
            following = graph.dst[np.flatnonzero(reached[graph.src])]
        reached[following] = True
        reached[change.targets] = True
    return reached


def neighbourhood(graph: LiveGraph, rows: Ints, layers: int) -> tuple[Ints, list[Block]]:
    """The computation graph of these rows: the rows whose inputs it reads, and one block per layer."""
    blocks = []
    known = np.zeros(len(graph), np.bool_)
    known[rows] = True
    place = np.empty(len(graph), np.int32)  # position among the rows; valid where `known`
    place[rows] = np.arange(len(rows))
    for _ in range(layers):
        edges = np.flatnonzero(known[graph.dst])
        src, dst = graph.src[edges], graph.dst[edges]
        further = np.zeros(len(graph), np.bool_)
        further[src] = True
        more, outputs = np.flatnonzero(further & ~known), len(rows)
        known[more] = True
        place[more] = np.arange(outputs, outputs + len(more))
        rows = np.concatenate([rows, more])
        blocks.append(block_of(place[src], place[dst], len(rows), outputs))
    return rows, blocks[::-1]
