"""The interface of peers, and the two recomputing kinds: of all vertices, and of influenced vertices."""

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
from d3gnn.nn import GNN, SAGEConv
from d3gnn.types import Floats, Ints

_INSTALL = {"dgl": "pip install --no-deps dgl==1.1.3 'setuptools<70'"}


class Peer(ABC):
    """Keeps the embeddings of a `LiveGraph` up to date, with the weights of a GraphSAGE model."""

    name: ClassVar[str]
    #: Import name of the required library.
    needs: ClassVar[str]
    #: Whether every batch recomputes all vertices.
    recomputes_all: ClassVar[bool]

    def __init__(self, model: GNN, graph: LiveGraph) -> None:
        self.layers: list[SAGEConv] = [layer for layer in model.layers if isinstance(layer, SAGEConv)]
        if len(self.layers) < len(model.layers):
            raise ValueError(f"peers support GraphSAGE models only, not {model}")
        if graph.schema.width != model.in_channels:
            raise ValueError(
                f"the model has in_channels={model.in_channels}, but the graph has {graph.schema.width} "
                f"inputs per vertex: create the graph with LiveGraph(schema.for_model({model.in_channels}))"
            )
        self.graph = graph
        self.library = import_library(self.needs)

    @abstractmethod
    def load(self) -> None:
        """Compute all embeddings of the current graph from scratch."""

    @abstractmethod
    def apply(self, change: Change) -> None:
        """Update the embeddings after the graph has applied one batch."""

    @abstractmethod
    def embeddings(self) -> Floats:
        """The embedding of each row of the graph [n, out_width]: a view, valid until the next batch."""


def import_library(name: str) -> Any:
    """Import an optional library without its warnings."""
    os.environ.setdefault(
        "DGLBACKEND", "pytorch"
    )  # otherwise DGL prints a message and writes a configuration file
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return import_module(name)
    except ImportError as error:
        install = _INSTALL.get(name, "pip install 'd3gnn[bench]'")
        raise ValueError(f"this peer needs {name}, which cannot be imported ({error}): {install}") from error


class Recomputing(Peer):
    """A peer that computes embeddings by forward passes of a library."""

    @abstractmethod
    def forward(self) -> Tensor:
        """The embeddings of all vertices."""

    def load(self) -> None:
        with torch.inference_mode():
            self._embeddings: Floats = self.forward().numpy()

    def embeddings(self) -> Floats:
        return self._embeddings


class Full(Recomputing):
    """Recomputes all embeddings after each batch."""

    recomputes_all = True

    def apply(self, change: Change) -> None:
        self.load()


class Influenced(Recomputing):
    """Recomputes the embeddings that a batch has influenced, from their full neighbourhoods.

    Hidden layers are not stored: a model of L layers reads the inputs of all vertices within L hops.
    """

    recomputes_all = False

    @abstractmethod
    def recompute(self, change: Change) -> tuple[Ints, Tensor]:
        """The influenced vertices and their new embeddings."""

    def apply(self, change: Change) -> None:
        self._grow()
        if len(change.inputs) or len(change.targets):
            with torch.inference_mode():
                rows, found = self.recompute(change)
                self._embeddings[rows] = found.numpy()

    def _grow(self) -> None:
        n, current = len(self.graph), self._embeddings
        if n > len(current):
            self._buffer = getattr(self, "_buffer", current)
            if n > len(self._buffer):
                self._buffer = np.zeros((n + n // 2, current.shape[1]), np.float32)
                self._buffer[: len(current)] = current
            self._embeddings = self._buffer[:n]


def unique(rows: list[Tensor]) -> Tensor:
    """The distinct rows of all tensors."""
    found: Tensor = torch.unique(torch.cat(rows))
    return found
