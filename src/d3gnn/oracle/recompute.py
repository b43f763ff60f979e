"""Embeddings recomputed from scratch, and how far others are from them."""

from __future__ import annotations

import numpy as np
import torch

from d3gnn.events import Key
from d3gnn.nn import GNN
from d3gnn.oracle.graph import Oracle
from d3gnn.types import Array, Floats, Ints


def forward(
    model: GNN, inputs: Floats, src_index: Ints, dst_index: Ints, edge_values: Floats | None = None
) -> Floats:
    """`GNN.forward` for numpy arrays, in eval mode: [n, in_channels] -> [n, out_channels].

    `edge_values` are the features of edges, NaN for those that an edge lacks.
    """
    model = model.prepared() if model.training else model
    with torch.inference_mode():
        x, edge_index = torch.from_numpy(inputs), torch.from_numpy(np.stack([src_index, dst_index]))
        edge_attr = None if edge_values is None else torch.from_numpy(edge_values)
        out: Floats = model(x, edge_index, edge_attr).numpy()
    return out


def embeddings(model: GNN, oracle: Oracle) -> dict[Key, Floats]:
    """The embedding of every vertex of the oracle's graph, recomputed from scratch."""
    out = forward(model, oracle.inputs(), *oracle.edge_index(), oracle.edge_values())
    return dict(zip(oracle.vertices, out, strict=True))


def relative_error(got: Array, expected: Array) -> float:
    r"""The largest difference of two matrices, relative to the largest number in the expected one.

    .. math:: \max_{ij} |got_{ij} - expected_{ij}| \; / \; \max_{ij} |expected_{ij}|

    0 if they are empty; the largest difference itself if all expected numbers are 0.

    >>> relative_error(np.array([[1.0, 2.2]]), np.array([[1.0, 2.0]]))
    0.1...
    """
    if got.shape != expected.shape:
        raise ValueError(f"the shapes {got.shape} and {expected.shape} must be the same")
    if not got.size:
        return 0.0
    expected = expected.astype(np.float64)
    difference = float(np.abs(got - expected).max())
    scale = float(np.abs(expected).max())
    return difference / scale if scale else difference
