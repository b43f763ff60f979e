"""What a peer is, and the two ways of recomputing: everything, or what a batch has influenced.

Both hand blocks to a library: who sends to whom, sorted by destination. A library does better with that than
with the bare list of edges, which each of them would sort by itself, and more slowly.
"""

from __future__ import annotations

import os
import warnings
from abc import ABC, abstractmethod
from importlib import import_module
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from d3gnn.bench.live_graph import Change, LiveGraph
from d3gnn.kernel.compiled import compiled
from d3gnn.nn import GNN, SAGE
from d3gnn.types import Bools, Floats, Ints, Ints32

_INSTALL = {"dgl": "pip install --no-deps dgl==1.1.3 'setuptools<70'"}


class Peer(ABC):
    """Keeps the embeddings of a `LiveGraph` up to date, with the weights of a GraphSAGE model."""

    name: ClassVar[str]
    #: What has to be installed, by the name that it is imported by.
    needs: ClassVar[str]
    #: Whether every vertex is computed anew after each batch.
    recomputes_all: ClassVar[bool]

    def __init__(self, model: GNN, graph: LiveGraph) -> None:
        self.layers: list[SAGE] = [layer for layer in model.layers if isinstance(layer, SAGE)]
        if len(self.layers) < len(model.layers):
            raise ValueError(f"peers take GraphSAGE models, not {model}")
        if graph.schema.width != model.in_width:
            raise ValueError(
                f"the model takes {model.in_width} inputs, but the graph's are {graph.schema.width} wide: "
                f"make it with LiveGraph(schema.for_model({model.in_width}))"
            )
        self.graph = graph
        self.library = import_library(self.needs)

    @abstractmethod
    def load(self) -> None:
        """Compute the embeddings of the graph as it is, from scratch."""

    @abstractmethod
    def apply(self, change: Change) -> None:
        """Bring the embeddings up to date with the graph, which has taken in one batch."""

    @abstractmethod
    def embeddings(self) -> Floats:
        """The embedding of each row of the graph [n, out_width]: a view, until the next batch."""


def import_library(name: str) -> Any:
    """A library that the project itself does without, imported quietly."""
    os.environ.setdefault("DGLBACKEND", "pytorch")  # or DGL prints, and writes a file to remember it by
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return import_module(name)
    except ImportError as error:
        how = _INSTALL.get(name, "pip install 'd3gnn[bench]'")
        raise ValueError(f"this peer needs {name}, which cannot be imported ({error}): {how}") from error


class Block(NamedTuple):
    """Who sends to whom in one layer.

    Output v takes from the inputs `sources[begins[v]:begins[v + 1]]`. The first inputs are the outputs
    themselves, in the same order, as each vertex also takes from itself.
    """

    begins: Ints32
    sources: Ints32
    inputs: int

    @property
    def outputs(self) -> int:
        return len(self.begins) - 1


def block_of(src: Ints | Ints32, dst: Ints | Ints32, inputs: int, outputs: int) -> Block:
    """The edges sorted by destination.

    >>> block_of(np.array([2, 0, 1]), np.array([1, 0, 1]), 3, 2)
    Block(begins=array([0, 1, 3], dtype=int32), sources=array([0, 2, 1], dtype=int32), inputs=3)
    """
    begins, sources = np.zeros(outputs + 1, np.int32), np.empty(len(src), np.int32)
    _sort(dst, src, begins, sources)
    return Block(begins, sources, inputs)


@compiled
def _sort(by: Ints | Ints32, other: Ints | Ints32, begins: Ints32, out: Ints32) -> None:
    """A counting sort; among equals the order stays."""
    for v in by:
        begins[v + 1] += 1
    for v in range(1, len(begins)):
        begins[v] += begins[v - 1]
    for i in range(len(by) - 1, -1, -1):
        v = by[i] + 1
        begins[v] -= 1
        out[begins[v]] = other[i]
    for v in range(1, len(begins) - 1):
        begins[v] = begins[v + 1]
    if len(begins) > 1:
        begins[-1] = len(by)


class Recomputing(Peer):
    """Computes embeddings in forward passes of a library, over all of the graph or parts of it."""

    @abstractmethod
    def adjacency(self, block: Block) -> Any:
        """The block as the library likes it best."""

    @abstractmethod
    def compute(self, layer: int, adjacency: Any, x: Tensor) -> Tensor:
        """A layer's outputs, from the values of its inputs."""

    def load(self) -> None:
        graph = self.graph
        adjacency = self.adjacency(block_of(graph.src, graph.dst, len(graph), len(graph)))
        with torch.inference_mode():
            x = torch.from_numpy(graph.inputs)
            for i in range(len(self.layers)):
                x = self.compute(i, adjacency, x)
        self._embeddings: Floats = x.numpy()

    def embeddings(self) -> Floats:
        return self._embeddings


class Full(Recomputing):
    """Computes every embedding after each batch."""

    recomputes_all = True

    def apply(self, change: Change) -> None:
        self.load()


class Influenced(Recomputing):
    """Computes the embeddings that a batch has influenced, from their whole neighbourhoods.

    No layer but the last is kept: a vertex is computed from the inputs of all vertices within as many hops as
    there are layers. Neighbours are found by going through the list of edges, which takes a fraction of the
    time in which a library makes an index of it; the batch has just made the last one useless.
    """

    recomputes_all = False

    def load(self) -> None:
        super().load()
        self._room = self._embeddings
        self._make_room(len(self._room) + 1)
        neighbourhood(self.graph, np.zeros(0, np.int64), 1)  # compiles what the batches will need

    def apply(self, change: Change) -> None:
        self._make_room(len(self.graph))
        self._embeddings = self._room[: len(self.graph)]
        rows = np.flatnonzero(influenced(self.graph, change, len(self.layers)))
        if not len(rows):
            return
        needed, blocks = neighbourhood(self.graph, rows, len(self.layers))
        with torch.inference_mode():
            x = torch.from_numpy(self.graph.inputs[needed])
            for i, block in enumerate(blocks):
                x = self.compute(i, self.adjacency(block), x)
            self._embeddings[rows] = x.numpy()

    def _make_room(self, n: int) -> None:
        if n > len(self._room):
            room = np.zeros((n + n // 2, self._room.shape[1]), np.float32)
            room[: len(self._room)] = self._room
            self._room = room


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
