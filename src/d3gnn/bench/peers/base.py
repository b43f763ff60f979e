"""What a peer is, and the two ways of recomputing: everything, or what a batch has influenced."""

from __future__ import annotations

import os
import warnings
from abc import ABC, abstractmethod
from importlib import import_module
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from d3gnn.bench.live_graph import Change, LiveGraph
from d3gnn.nn import GNN, SAGE
from d3gnn.types import Floats, Ints

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


class Recomputing(Peer):
    """Computes embeddings in forward passes of a library."""

    @abstractmethod
    def forward(self) -> Tensor:
        """The embeddings of all vertices."""

    def load(self) -> None:
        with torch.inference_mode():
            self._embeddings: Floats = self.forward().numpy()

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
    there are layers.
    """

    recomputes_all = False

    @abstractmethod
    def recompute(self, change: Change) -> tuple[Ints, Tensor]:
        """The vertices that the batch has influenced, and their embeddings."""

    def apply(self, change: Change) -> None:
        self._grow()
        if len(change.inputs) or len(change.targets):
            with torch.inference_mode():
                rows, found = self.recompute(change)
                self._embeddings[rows] = found.numpy()

    def _grow(self) -> None:
        n, kept = len(self.graph), self._embeddings
        if n > len(kept):
            self._room = getattr(self, "_room", kept)
            if n > len(self._room):
                self._room = np.zeros((n + n // 2, kept.shape[1]), np.float32)
                self._room[: len(kept)] = kept
            self._embeddings = self._room[:n]


def unique(rows: list[Tensor]) -> Tensor:
    """All of these rows, each once."""
    found: Tensor = torch.unique(torch.cat(rows))
    return found
