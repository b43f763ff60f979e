"""The most that could be had from DGL by hand: its kernels, over what compiled code and masks have prepared.

DGL sorts the list of edges anew after each batch, by its own means, and so do its sampler's look-ups. Here a
compiled counting sort takes a quarter of that time, neighbours are found by going through the list of edges,
and the mean is a sum that is divided in place.
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
        # DGL counts its threads apart from torch.
        self.library.utils.set_num_threads(torch.get_num_threads())
        self._numbers = torch.empty(0, dtype=torch.int32)

    def adjacency(self, block: Block) -> tuple[Any, Tensor]:
        """The block as DGL's kernels take it, and the degree of each output."""
        begins, sources = torch.from_numpy(block.begins), torch.from_numpy(block.sources)
        # DGL can do without the edges' numbers, but crashes where rows are long enough to be cut in pieces.
        if len(sources) > len(self._numbers):
            self._numbers = torch.arange(2 * len(sources), dtype=sources.dtype)
        columns = ("csc", (begins, sources, self._numbers[: len(sources)]))
        made = self.library.create_block(columns, num_src_nodes=block.inputs, num_dst_nodes=block.outputs)
        return made, begins.diff().clamp_(min=1).unsqueeze(1)

    def compute(self, layer: int, adjacency: tuple[Any, Tensor], x: Tensor) -> Tensor:
        """A layer's outputs, from the values of its inputs."""
        (block, degrees), sage = adjacency, self.layers[layer]
        aggregate = self.library.ops.copy_u_sum(block, sage.message(x))
        if sage.aggregator == "mean":
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
    """Everything after each batch, with DGL's kernels."""

    name = "tuned_full"


class TunedInfluenced(_Tuned, Influenced):
    """What a batch has influenced, with DGL's kernels."""

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
    """Which vertices' embeddings the change can reach: one hop further along edges with every layer."""
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
    """What it takes to compute these rows: the rows whose inputs are needed, and a block for each layer."""
    blocks = []
    known = np.zeros(len(graph), np.bool_)
    known[rows] = True
    place = np.empty(len(graph), np.int32)  # among the rows, where it is known
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
