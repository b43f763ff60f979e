"""The static forward pass of a layer: all vertices of a graph at once, in plain torch.

This is the definition that incremental inference is tested against. It shares no code with the kernel. Sums
are computed in float64, and autograd works through all of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from d3gnn.nn.aggregation import aggregation

if TYPE_CHECKING:
    from d3gnn.nn.layer import Layer

#: Messages that are in memory at once, unless a single vertex receives more.
_CHUNK = 1 << 16
#: The largest logit of a vertex without messages: lower than any real one.
_LOWEST = -1e30


def layer_forward(layer: Layer, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None = None) -> Tensor:
    r"""The output of one layer for every vertex: [n, in_width] -> [n, out_width].

    .. math:: x_v' = \text{update}(\text{root}(x_v), \text{aggregate}_{(u, v) \in E} \text{message}(x_u))

    `edge_index` [2, edges] has sources in its first row and destinations in its second. `edge_attr` [edges,
    edge_dim] has NaN for numbers that an edge lacks; without it, edges lack all of them. The aggregate of no
    messages is 0.
    """
    edge_attr = _check(layer, x, edge_index, edge_attr)
    src, dst = edge_index
    edges = _edge_values(layer, x, src, edge_attr)
    if layer.needs_degree:
        x = torch.cat([x, _degrees(len(x), src, dst, edges).to(x.dtype)], 1)
    if layer.skips_self_loops:
        kept = src != dst
        src, dst, edges = src[kept], dst[kept], edges[kept]
    aggregate = _aggregate if layer.attention is None else _attend
    return layer.update(layer.root(x), aggregate(layer, layer.message(x), src, dst, edges).to(x.dtype))


def _check(layer: Layer, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None) -> Tensor | None:
    """Refuse tensors of wrong shapes; edge features as a matrix."""
    if x.ndim != 2 or x.shape[1] != layer.in_width:
        raise ValueError(f"x has shape {tuple(x.shape)}: it must be [vertices, {layer.in_width}]")
    if edge_index.ndim != 2 or edge_index.shape[0] != 2:
        raise ValueError(f"edge_index has shape {tuple(edge_index.shape)}: it must be [2, edges]")
    if edge_attr is None or not layer.edge_dim:
        return None
    if edge_attr.ndim == 1:
        edge_attr = edge_attr.unsqueeze(1)
    expected = edge_index.shape[1], layer.edge_dim
    if edge_attr.shape != expected:
        raise ValueError(f"edge_attr has shape {tuple(edge_attr.shape)}: it must be {list(expected)}")
    return edge_attr


def _edge_values(layer: Layer, x: Tensor, src: Tensor, edge_attr: Tensor | None) -> Tensor:
    """What each edge contributes to its message: [edges, edge_width]."""
    if not layer.edge_width:
        return x.new_zeros((len(src), 0))
    if edge_attr is None:
        edge_attr = x.new_full((len(src), layer.edge_dim), torch.nan)
    return layer.edge(torch.where(edge_attr.isnan(), layer.edge_default, edge_attr))


def _aggregate(layer: Layer, values: Tensor, src: Tensor, dst: Tensor, edges: Tensor) -> Tensor:
    """The messages of each vertex by each of the layer's aggregations, side by side."""
    functions = [aggregation(name) for name in layer.aggr.split(",")]
    rows = []
    for begin, end, some in _by_destination(len(values), dst):
        if layer.makes_edge_messages:
            messages = layer.edge_message(values[src[some]], values[dst[some]], edges[some]).double()
        else:
            messages = values[src[some]].double()
            if layer.edge_width:
                messages = messages * edges[some].double()
        rows.append(torch.cat([f(messages, dst[some] - begin, end - begin) for f in functions], 1))
    return torch.cat(rows)


def _by_destination(n: int, dst: Tensor) -> Iterator[tuple[int, int, Tensor]]:
    """Ranges of vertices with the positions of their in-edges, so that few messages are made at once."""
    if len(dst) <= _CHUNK:
        yield 0, n, torch.arange(len(dst))
        return
    order = torch.argsort(dst, stable=True)
    ends = torch.bincount(dst, minlength=n).cumsum(0)
    begin, first = 0, 0
    while begin < n:
        end = max(begin + 1, int(torch.searchsorted(ends, first + _CHUNK, right=True)))
        last = int(ends[end - 1])
        yield begin, end, order[first:last]
        begin, first = end, last


def _attend(layer: Layer, values: Tensor, src: Tensor, dst: Tensor, edges: Tensor) -> Tensor:
    """Softmax attention, not yet normalised, since `update` adds the vertex itself.

    For each vertex and head: the largest logit, the sum of exponentials relative to it, and the sum of
    messages weighted by those. Then the mean of what its in-edges contribute.
    """
    assert layer.attention is not None
    heads, channels, slope, scores = layer.attention
    n, size = len(values), heads * channels
    values, edges = values.double(), edges.double()
    messages = values[src, :size].reshape(-1, heads, channels)
    # With `scores`, a term has a number for each channel (GATv2); without, one for each head (GAT).
    terms = values[:, :size] if scores is not None else values[:, size : size + heads]
    terms = terms[src] + values[dst, -terms.shape[1] :]
    terms = torch.nn.functional.leaky_relu(terms + edges if layer.edge_width else terms, slope)
    logits = terms if scores is None else (terms.view(-1, heads, channels) * scores.double()).sum(-1)
    largest = torch.full((n, heads), _LOWEST, dtype=torch.float64)
    largest = largest.scatter_reduce(0, dst.unsqueeze(1).expand(-1, heads), logits, "amax")
    share = torch.exp(logits - largest[dst])
    total = torch.zeros((n, heads), dtype=torch.float64).index_add(0, dst, share)
    weighted = torch.zeros((n, heads, channels), dtype=torch.float64)
    weighted = weighted.index_add(0, dst, share.unsqueeze(-1) * messages)
    return torch.cat([largest, total, weighted.flatten(1), aggregation("mean")(edges, dst, n)], 1)


def _degrees(n: int, src: Tensor, dst: Tensor, edges: Tensor) -> Tensor:
    """For each vertex: the summed weights of its in-edges and of its self-loops, the weight of its heaviest
    self-loop, and the number of self-loops.
    """
    weight = edges[:, 0].double() if edges.shape[1] else torch.ones(len(src), dtype=torch.float64)
    nothing, loop = torch.zeros(n, dtype=torch.float64), src == dst
    return torch.stack(
        [
            nothing.index_add(0, dst[~loop], weight[~loop]),
            nothing.index_add(0, dst[loop], weight[loop]),
            nothing.scatter_reduce(0, dst[loop], weight[loop], "amax"),
            torch.bincount(dst[loop], minlength=n).double(),
        ],
        1,
    )
